"""Whether a file is whole, and what a file alone cannot prove."""

import hashlib
from dataclasses import dataclass
from typing import Final

from tidemark.boom.reader import BoomReader, Source
from tidemark.errors import CorruptFile

NOT_PROVEN: Final = (
    "A lone file cannot prove that no block is missing at its end, cut off exactly between two blocks, "
    "nor that no byte inside a block was changed for another that still decodes: "
    "compare lines and digest with the manifest."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was found in the whole file, or up to the error; the digest (SHA-256) is of the bytes read."""

    name: str
    bytes: int
    blocks: int
    lines: int
    min_ms: int | None
    max_ms: int | None
    digest: str
    error: str | None

    @property
    def is_whole(self) -> bool:
        return self.error is None


def verify(source: Source, name: str) -> Verification:
    """Decode every line of a file; damage is a result, not an exception."""
    hashing = HashingSource(source)
    counts = _Counts()
    error = None
    try:
        counts.add_all(BoomReader(hashing, name))
    except CorruptFile as found:
        error = str(found)
    return Verification(
        name=name,
        bytes=hashing.size,
        blocks=counts.blocks,
        lines=counts.lines,
        min_ms=counts.min_ms,
        max_ms=counts.max_ms,
        digest=hashing.digest.hexdigest(),
        error=error,
    )


class _Counts:
    def __init__(self) -> None:
        self.blocks = 0
        self.lines = 0
        self.min_ms: int | None = None
        self.max_ms: int | None = None

    def add_all(self, reader: BoomReader) -> None:
        for block in reader.blocks():
            for log_block in reader.decode(block):
                self.lines += len(log_block.messages)
                start = log_block.second * 1000
                self._add_times([start + ms for ms in log_block.milliseconds])
            self.blocks += 1

    def _add_times(self, times: list[int]) -> None:
        known = [time for time in (self.min_ms, self.max_ms) if time is not None]
        self.min_ms = min(known + times, default=None)
        self.max_ms = max(known + times, default=None)


class HashingSource:
    """Digest and size are of what was read."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.digest = hashlib.sha256()
        self.size = 0

    def read(self, size: int, /) -> bytes:
        data = self._source.read(size)
        self.digest.update(data)
        self.size += len(data)
        return data
