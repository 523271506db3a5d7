"""The archive index: which bytes of which source lie where. JSON lines, one segment for each archive of an hour."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from tidemark import layout
from tidemark.names import Hour
from tidemark.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRecord:
    """One piece of a source: the seven fields of Kamanja's index, and what it takes to find a line without reading.

    Byte offsets are half-open and fall on blocks; `crc` is the CRC-32 of the piece without its sync markers;
    `destBytes` and `destDigest` (SHA-256) are the whole target's.
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


def dump_index(records: Iterable[IndexRecord]) -> bytes:
    return "".join(f"{json.dumps(asdict(record))}\n" for record in records).encode()


def read_index(storage: Storage, hour: Hour, archives: int) -> list[IndexRecord]:
    """All pieces of an hour that was archived `archives` times."""
    return [
        IndexRecord(**json.loads(line))
        for archive in range(1, archives + 1)
        for line in storage.read(layout.index_segment(hour, archive)).splitlines()
    ]
