"""Writes a boom file block by block. Lines are encoded as whole Arrow columns, never one by one.

The bytes depend on the name, the create time, the compression, the sequence of lines and where it was flushed alone:
not on how the lines were cut into batches.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from isal.isal_zlib import crc32

from tidemark.boom.columns import encode_longs
from tidemark.boom.escape import escape_array, offsets_of
from tidemark.boom.format import (
    AVRO_BLOCK_LIMIT,
    LINES_LIMIT,
    BoomBlock,
    Compression,
    encode_long,
    header_of,
    marker_of,
)
from tidemark.boom.pack import Pack, packer_for
from tidemark.errors import WrongUse

Longs = npt.NDArray[np.int64]

# What is encoded at once: large enough to make Python's share small, small enough to stay near the caches.
_CHUNK_BYTES: Final = 4 << 20
_CHUNK_LINES: Final = 1 << 17

_END: Final = b"\0"
_NOTHING: Final = pa.scalar(b"", pa.large_binary())
_MILLISECONDS: Final = encode_longs(np.arange(1000))
_MS_BYTES: Final = np.diff(offsets_of(_MILLISECONDS))
_MOST_MS_BYTES: Final = int(_MS_BYTES.max())
_LENGTHS: Final = encode_longs(np.arange(1 << 14))


class Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BoomSummary:
    """What was written; times and offsets are None when there was no line. The digest is SHA-256, in hex."""

    bytes: int
    lines: int
    digest: str
    min_ms: int | None
    max_ms: int | None
    first_offset: int | None
    last_offset: int | None
    blocks: tuple[BoomBlock, ...]


@dataclass(frozen=True, slots=True)
class _Lines:
    times: Longs
    messages: pa.LargeBinaryArray
    offsets: Longs

    def __len__(self) -> int:
        return len(self.times)

    def cut(self, start: int, stop: int) -> "_Lines":
        return _Lines(self.times[start:stop], self.messages[start:stop], self.offsets[start:stop])

    def escaped(self) -> "_Lines":
        return _Lines(self.times, escape_array(self.messages), self.offsets)

    def size(self) -> int:
        positions = offsets_of(self.messages)
        return int(positions[-1] - positions[0])


def _join(parts: Sequence[_Lines]) -> _Lines:
    """A copy that holds on to nothing of the batches that the parts were cut from."""
    return _Lines(
        np.concatenate([part.times for part in parts]),
        pa.concat_arrays([part.messages for part in parts]),
        np.concatenate([part.offsets for part in parts]),
    )


@dataclass(slots=True)
class _OpenBlock:
    """The Avro block that is being filled with whole log blocks."""

    records: int = 0
    size: int = 0
    parts: list[bytes | memoryview] = field(default_factory=list)
    times: list[Longs] = field(default_factory=list)
    offsets: list[Longs] = field(default_factory=list)

    def add(self, records: int, data: memoryview, times: Longs, offsets: Longs) -> None:
        self.records += records
        self.size += len(data) + len(_END)
        self.parts += [data, _END]
        self.times.append(times)
        self.offsets.append(offsets)


class BoomWriter:
    """Writes the header at once, a block whenever one is full, the rest when closed; never closes the sink.

    Holds about one Avro block and one chunk of lines in memory, or three times the largest line.
    """

    def __init__(self, sink: Sink, *, name: str, create_time_ms: int, compression: Compression) -> None:
        self._sink = sink
        self._name = name
        self._create_time_ms = create_time_ms
        self._compression = compression
        self._pack: Pack | None = None
        self._marker = marker_of(name)
        self._digest = hashlib.sha256()
        self._position = 0
        self._log_blocks = 0
        self._pending: list[_Lines] = []
        self._pending_bytes = 0
        self._pending_lines = 0
        self._open = _OpenBlock()
        self._blocks: list[BoomBlock] = []
        self._put(header_of(name))

    def write(self, times_ms: pa.Int64Array, messages: pa.Array, offsets: pa.Int64Array) -> None:
        """Add lines; `messages` are binaries, large or not, and none of the columns has nulls."""
        lines = self._checked(times_ms, messages, offsets)
        for part in _cut_by_size(lines):
            self._wait(part.escaped())
            if self._pending_bytes >= _CHUNK_BYTES or self._pending_lines >= _CHUNK_LINES:
                self._encode_pending(is_last=False)
        if self._pending and len(self._pending[-1]) < len(lines):
            # What waits must not keep a large batch of the caller alive.
            self._pending[-1] = _join(self._pending[-1:])

    def flush(self) -> None:
        """End the block that is being filled: nothing is held any more. Where this is called, the bytes depend on."""
        if self._pending:
            self._encode_pending(is_last=True)
        if self._open.records:
            self._end_block()

    def close(self) -> BoomSummary:
        self.flush()
        blocks = self._blocks
        return BoomSummary(
            bytes=self._position,
            lines=sum(block.lines for block in blocks),
            digest=self._digest.hexdigest(),
            min_ms=min((block.min_ms for block in blocks), default=None),
            max_ms=max((block.max_ms for block in blocks), default=None),
            first_offset=blocks[0].runs[0][0] if blocks else None,
            last_offset=blocks[-1].runs[-1][1] - 1 if blocks else None,
            blocks=tuple(blocks),
        )

    def _checked(self, times_ms: pa.Int64Array, messages: pa.Array, offsets: pa.Int64Array) -> _Lines:
        columns = (times_ms, messages, offsets)
        if any(column.null_count for column in columns) or len({len(column) for column in columns}) > 1:
            found = ", ".join(f"{len(column)} with {column.null_count} nulls" for column in columns)
            raise WrongUse(
                f"Cannot write lines to {self._name}: found times, messages, offsets: {found}; "
                "wanted three columns of one length without nulls"
            )
        return _Lines(times_ms.to_numpy(), messages.cast(pa.large_binary()), offsets.to_numpy())

    def _wait(self, lines: _Lines) -> None:
        self._pending.append(lines)
        self._pending_bytes += lines.size()
        self._pending_lines += len(lines)

    def _encode_pending(self, *, is_last: bool) -> None:
        """Encode all closed log blocks; the open one waits for more lines unless these are the last."""
        lines = _join(self._pending)
        self._pending, self._pending_bytes, self._pending_lines = [], 0, 0
        encoded = _EncodedLines(lines)
        starts = encoded.log_block_starts()
        stops = np.append(starts[1:], len(lines))
        if not is_last:
            self._wait(_join([lines.cut(int(starts[-1]), len(lines))]))
            starts, stops = starts[:-1], stops[:-1]
        if len(starts):
            self._fill(encoded, starts, stops)

    def _fill(self, encoded: "_EncodedLines", starts: Longs, stops: Longs) -> None:
        rows = np.append(starts, stops[-1])
        data, positions = encoded.assemble(self._heads(encoded.seconds[starts], stops - starts), rows)
        first = 0
        while first < len(starts):
            room = AVRO_BLOCK_LIMIT - self._open.size
            last = int(np.searchsorted(positions, positions[first] + room, "right")) - 1
            if last <= first and self._open.records:
                self._end_block()
                continue
            last = max(last, first + 1)
            span = slice(rows[first], rows[last])
            # Each head begins with the end of the block before: without it here, and added behind.
            part = data[positions[first] + len(_END) : positions[last]]
            self._open.add(last - first, part, encoded.lines.times[span], encoded.lines.offsets[span])
            first = last

    def _heads(self, seconds: Longs, counts: Longs) -> pa.LargeBinaryArray:
        numbers = np.arange(self._log_blocks, self._log_blocks + len(seconds))
        self._log_blocks += len(seconds)
        # A zero is encoded as the end of the block before.
        zeros = np.zeros_like(seconds)
        return encode_longs(zeros, seconds, zeros + self._create_time_ms, numbers, counts)

    def _end_block(self) -> None:
        block, self._open = self._open, _OpenBlock()
        data = b"".join(block.parts)
        if self._pack is None:
            self._pack = packer_for(self._compression, data)
        packed = self._pack(data)
        sizes = encode_long(block.records) + encode_long(len(packed))
        times, offsets = np.concatenate(block.times), np.concatenate(block.offsets)
        start = self._position
        self._put(sizes)
        self._put(packed)
        self._put(self._marker)
        self._blocks.append(
            BoomBlock(
                start=start,
                end=self._position,
                lines=len(times),
                runs=_runs_of(offsets),
                min_ms=int(times.min()),
                max_ms=int(times.max()),
                crc=crc32(packed, crc32(sizes)),
            )
        )

    def _put(self, data: bytes) -> None:
        self._sink.write(data)
        self._digest.update(data)
        self._position += len(data)


class _EncodedLines:
    """Lines with the Avro encoding of their lengths; that of their milliseconds is joined with the heads of blocks."""

    def __init__(self, lines: _Lines) -> None:
        self.lines = lines
        self.seconds = lines.times // 1000
        self._milliseconds = lines.times - self.seconds * 1000
        self._lengths = _encode_lengths(np.diff(offsets_of(lines.messages)))

    def log_block_starts(self) -> Longs:
        """Rows at which a log block begins: a new second, or the next line would make it too large."""
        changes = np.flatnonzero(np.diff(self.seconds)) + 1
        edges = np.concatenate(([0], changes, [len(self.seconds)]))
        positions = offsets_of(self._lengths)[edges] + offsets_of(self.lines.messages)[edges] + _MOST_MS_BYTES * edges
        may_be_full = np.flatnonzero(np.diff(positions) > LINES_LIMIT)
        cuts = [cut for run in may_be_full for cut in self._cut_full(int(edges[run]), int(edges[run + 1]))]
        return np.sort(np.concatenate((edges[:-1], cuts)).astype(np.int64))

    def assemble(self, heads: pa.LargeBinaryArray, rows: Longs) -> tuple[memoryview, Longs]:
        """The bytes of the log blocks from rows[0] to rows[-1], and where each of them begins and ends."""
        firsts, span = rows[:-1] - rows[0], slice(rows[0], rows[-1])
        milliseconds = self._milliseconds[span].copy()
        begun = pc.binary_join_element_wise(heads, _MILLISECONDS.take(pa.array(milliseconds[firsts])), _NOTHING)
        milliseconds[firsts] = np.arange(len(_MILLISECONDS), len(_MILLISECONDS) + len(firsts))
        joined = pc.binary_join_element_wise(
            pa.concat_arrays([_MILLISECONDS, begun]).take(pa.array(milliseconds)),
            self._lengths[span],
            self.lines.messages[span],
            _NOTHING,
        )
        return memoryview(joined.buffers()[2]), offsets_of(joined)[rows - rows[0]]

    def _cut_full(self, start: int, stop: int) -> Iterator[int]:
        """Cut lines of one second so that each log block is as large as it may be, or a single line."""
        lines = slice(start, stop + 1)
        positions = offsets_of(self._lengths)[lines] + offsets_of(self.lines.messages)[lines]
        positions[1:] += np.cumsum(_MS_BYTES[self._milliseconds[start:stop]])
        first, last = 0, stop - start
        while positions[last] - positions[first] > LINES_LIMIT:
            fitting = int(np.searchsorted(positions, positions[first] + LINES_LIMIT, "right")) - 1
            first = max(fitting, first + 1)
            if first >= last:
                return
            yield start + first


def _encode_lengths(lengths: Longs) -> pa.LargeBinaryArray:
    if lengths.max() < len(_LENGTHS):
        return _LENGTHS.take(pa.array(lengths))
    return encode_longs(lengths)


def _cut_by_size(lines: _Lines) -> Iterator[_Lines]:
    """Parts of at most a chunk, or of a single line: bounds memory when lines are large."""
    positions = offsets_of(lines.messages)
    start = 0
    while start < len(lines):
        fitting = int(np.searchsorted(positions, positions[start] + _CHUNK_BYTES, "right")) - 1
        stop = max(start + 1, min(fitting, start + _CHUNK_LINES))
        yield lines.cut(start, stop)
        start = stop


def _runs_of(offsets: Longs) -> tuple[tuple[int, int], ...]:
    breaks = np.flatnonzero(np.diff(offsets) != 1)
    firsts = offsets[np.concatenate(([0], breaks + 1))]
    stops = offsets[np.append(breaks, len(offsets) - 1)] + 1
    return tuple(zip(firsts.tolist(), stops.tolist(), strict=True))
