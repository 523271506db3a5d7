"""What a task hands to the driver: one result a split, as JSON in a row."""

from dataclasses import dataclass

from tidemark.boom.format import BoomBlock
from tidemark.ledger.records import Shift, Window
from tidemark.manifest import FileKind
from tidemark.names import Shard
from tidemark.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One task's offsets. `order` counts all splits of the shift, so that no two files have the same createTime."""

    shard: Shard
    index: int
    order: int
    start: int
    end: int


def splits_of(shift: Shift) -> tuple[Split, ...]:
    cuts = [
        (shard, index, low, high)
        for shard, found in sorted(shift.shards.items())
        for index, (low, high) in enumerate(found.splits)
    ]
    return tuple(
        Split(shard=shard, index=index, order=order, start=low, end=high)
        for order, (shard, index, low, high) in enumerate(cuts)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrder:
    """Everything that a task needs, sent to it in its closure."""

    shift: str
    planned_ms: int
    window: Window
    timestamp: str
    compression: str
    storage: Storage
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """`folder` holds the file until the commit moves it to `path`."""

    path: str
    folder: str
    kind: FileKind
    hour: str | None
    lines: int
    bytes: int
    digest: str
    first_offset: int
    last_offset: int
    min_ms: int
    max_ms: int
    blocks: tuple[BoomBlock, ...]

    @property
    def temporary(self) -> str:
        return f"{self.folder}/{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitResult:
    """Every split has one. A first and last offset of -1: it held no record, only markers and holes."""

    shard: str
    index: int
    records: int
    tombstones: int
    first_offset: int
    last_offset: int
    last_digest: str
    files: tuple[WrittenFile, ...]

    def lines(self, kind: FileKind) -> int:
        return sum(file.lines for file in self.files if file.kind is kind)
