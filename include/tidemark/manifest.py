"""What a committed shift wrote: the list that readers, the archiver, flags and a rebuild go by.

A manifest depends on the shift alone, so that a rerun writes the same bytes: no times of writing, no attempts.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from tidemark import layout
from tidemark.boom.format import BoomBlock
from tidemark.errors import NotFound
from tidemark.ledger.records import Gap, Positions, Shift, Timeline, parse
from tidemark.lineage import Cursor
from tidemark.names import Hour
from tidemark.storage import Storage

FORMAT = 2
"""Format 1 had no cursors."""


class FileKind(StrEnum):
    LINES = "lines"
    SKEWED = "skewed"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """`hour` is None for quarantine; offsets are the first and the last that the file holds, times its span."""

    path: str
    kind: FileKind
    hour: str | None
    shard: str
    lines: int
    late: int
    bytes: int
    digest: str
    first_offset: int
    last_offset: int
    min_ms: int
    max_ms: int

    def as_gap(self, hour: Hour) -> Gap:
        """Of its hour, when the file is damaged or gone."""
        return Gap(
            shard=self.shard,
            start=self.first_offset,
            end=self.last_offset + 1,
            since_ms=hour.start_ms,
            until_ms=hour.end_ms,
            file=self.path,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestShard:
    """records = lines + skewed + bad + tombstones; holes are offsets of the range that held no record. `cursor`: where
    the range ends."""

    start: int
    end: int
    records: int
    lines: int
    skewed: int
    bad: int
    tombstones: int
    holes: int
    cursor: Cursor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """`bytes` of all files, quarantine too."""

    records: int
    lines: int
    late: int
    skewed: int
    bad: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    format: int = FORMAT
    writer: str
    stream: str
    shift: Shift
    timelines: Mapping[str, Timeline]
    positions: Positions
    shards: Mapping[str, ManifestShard]
    gaps: tuple[Gap, ...]
    files: tuple[ManifestFile, ...]

    def files_of(self, hour: str) -> tuple[ManifestFile, ...]:
        return tuple(file for file in self.files if file.hour == hour)

    def counts(self) -> Counts:
        shards = self.shards.values()
        return Counts(
            records=sum(shard.records for shard in shards),
            lines=sum(shard.lines for shard in shards),
            late=sum(file.late for file in self.files),
            skewed=sum(shard.skewed for shard in shards),
            bad=sum(shard.bad for shard in shards),
            bytes=sum(file.bytes for file in self.files),
        )


def read_manifest(storage: Storage, path: str) -> Manifest:
    return parse(Manifest, storage.read(path))


def list_manifests(storage: Storage) -> dict[int, str]:
    """The paths of all manifests, by number."""
    return {layout.number_of_manifest(path): path for path in _paths(storage)}


def manifests_named(storage: Storage, shift: str) -> list[str]:
    """The paths of all manifests of shifts with this id: one, unless another stream wrote here, too."""
    return [path for path in _paths(storage) if layout.shift_of_manifest(path) == shift]


def _paths(storage: Storage) -> list[str]:
    return [status.path for status in storage.list(layout.MANIFESTS) if status.path.endswith(".json")]


def manifests_of(storage: Storage, numbers: Sequence[int]) -> list[Manifest]:
    paths = list_manifests(storage) if numbers else {}
    for number in numbers:
        if number not in paths:
            raise NotFound(f"Cannot find the manifest of shift number {number}: there is none in {layout.MANIFESTS}")
    return [read_manifest(storage, paths[number]) for number in numbers]


def dump_blocks(blocks: Iterable[tuple[str, BoomBlock]]) -> bytes:
    """The block directory: JSON lines, one for each Avro block of each boom file."""
    lines = (json.dumps({"file": path, **asdict(block)}, separators=(",", ":")) for path, block in blocks)
    return "".join(f"{line}\n" for line in lines).encode()


def read_blocks(storage: Storage, shift: Shift) -> Iterator[tuple[str, BoomBlock]]:
    for line in storage.read(layout.blocks(shift.number, shift.id)).splitlines():
        value = json.loads(line)
        path = value.pop("file")
        value["runs"] = tuple((first, end) for first, end in value["runs"])
        yield path, BoomBlock(**value)
