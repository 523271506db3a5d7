"""The archive index: which bytes of which source lie where. JSON lines, one segment for each archive of an hour."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from tidemark import layout
from tidemark.errors import NotFound
from tidemark.names import Hour
from tidemark.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRecord:
    """One piece of a source: the seven fields of Kamanja's index, and what it takes to find a line without reading.

    Byte offsets are half-open and fall on blocks; `crc` is the CRC-32 of the piece in the target without its sync
    markers; `destBytes` and `destDigest` (SHA-256) are the whole target's. `rewritten`: the source had another schema
    or codec, so that its n-th block is the n-th of the piece but not of the same length.
    """

    format: int = 1
    srcFile: str  # noqa: N815 - the seed's names
    destFile: str  # noqa: N815
    srcFileStartOffset: int  # noqa: N815
    srcFileEndOffset: int  # noqa: N815
    destFileStartOffset: int  # noqa: N815
    destFileEndOffset: int  # noqa: N815
    ArchiveTimestamp: int
    shard: str
    first_offset: int
    last_offset: int
    min_ms: int
    max_ms: int
    lines: int
    crc: int
    destBytes: int  # noqa: N815
    destDigest: str  # noqa: N815
    rewritten: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Void:
    """Everything that earlier segments say of this target holds no more: its data was not there, or not whole."""

    format: int = 1
    void: str
    ArchiveTimestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    pieces: tuple[IndexRecord, ...]
    voids: tuple[Void, ...] = ()


def dump_index(segment: Segment) -> bytes:
    """Voids first: whoever reads on finds what replaces them."""
    records: tuple[Void | IndexRecord, ...] = (*segment.voids, *segment.pieces)
    return "".join(f"{json.dumps(asdict(record))}\n" for record in records).encode()


def read_segment(storage: Storage, hour: Hour, archive: int) -> Segment | None:
    """None when that archive has written none yet."""
    try:
        lines = storage.read(layout.index_segment(hour, archive)).splitlines()
    except NotFound:
        return None
    values = [json.loads(line) for line in lines]
    return Segment(
        pieces=tuple(IndexRecord(**value) for value in values if "void" not in value),
        voids=tuple(Void(**value) for value in values if "void" in value),
    )


def read_index(storage: Storage, hour: Hour, archives: int) -> list[IndexRecord]:
    """All pieces of an hour that was archived `archives` times, but for those that a later segment voids."""
    segments = []
    for archive in range(1, archives + 1):
        segment = read_segment(storage, hour, archive)
        if segment is None:
            raise NotFound(f"Cannot read the index of {hour}: {layout.index_segment(hour, archive)} is gone")
        segments.append(segment)
    voided = {void.void for segment in segments for void in segment.voids}
    return [piece for segment in segments for piece in segment.pieces if piece.destFile not in voided]


def by_target(pieces: Iterable[IndexRecord]) -> dict[str, list[IndexRecord]]:
    """The pieces of each target, in the order of its bytes."""
    targets: dict[str, list[IndexRecord]] = {}
    for piece in sorted(pieces, key=lambda piece: (piece.destFile, piece.destFileStartOffset)):
        targets.setdefault(piece.destFile, []).append(piece)
    return targets


def is_held(path: str, lines: int, pieces: Iterable[IndexRecord]) -> bool:
    """Whether the pieces have all of a source that has so many lines. No two pieces overlap, so counting is enough."""
    return sum(piece.lines for piece in pieces if piece.srcFile == path) == lines
