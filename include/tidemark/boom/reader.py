"""Reads boom files, KaBoom's and logdriver's too, block by block in constant memory.

A file that was cut or altered raises CorruptFile with the name and the byte; the last block is never dropped
in silence. What the format, which has neither length nor checksum, cannot show: see `tidemark.boom.verify`.
"""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn, Protocol

from tidemark.boom.escape import unescape
from tidemark.boom.format import MAGIC, MARKER_SIZE, SCHEMA, SCHEMA_WITH_EVENT_ID
from tidemark.boom.pack import unpack
from tidemark.errors import CorruptFile

_READ_SIZE: Final = 1 << 20
_LONGEST_LONG: Final = 10
_LONGEST_METADATA: Final = 1 << 20
_SHAPING_KEYS: Final = ("type", "name", "fields", "items")
_CODECS: Final = (b"deflate", b"null")


class Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BoomHeader:
    """`size` is the number of bytes before the first block."""

    size: int
    marker: bytes
    codec: str
    has_event_id: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RawBlock:
    """One Avro block as it stands in the file, byte range half-open with the sync marker.

    `frame` is the block without its sync marker: what can be copied into another file. `data_start` is where,
    in the frame, the (packed) records begin.
    """

    start: int
    end: int
    records: int
    frame: bytes
    data_start: int

    @property
    def data(self) -> memoryview:
        return memoryview(self.frame)[self.data_start :]

    @property
    def crc(self) -> int:
        return zlib.crc32(self.frame)


@dataclass(frozen=True, slots=True)
class BoomLine:
    """A line and its sort key: time, create time, block number, index in the log block."""

    time_ms: int
    create_time: int
    block_number: int
    index: int
    message: bytes


class LogBlock(NamedTuple):
    second: int
    create_time: int
    block_number: int
    milliseconds: list[int]
    messages: list[bytes]


class BoomReader:
    """Reads the header when made, then the rest once, from wherever the source stands."""

    def __init__(self, source: Source, name: str) -> None:
        self._input = _Input(source, name)
        self.header = _read_header(self._input)

    def blocks(self) -> Iterator[RawBlock]:
        while not self._input.is_at_end():
            yield self._read_block()

    def log_blocks(self) -> Iterator[LogBlock]:
        """The log blocks, their messages unescaped."""
        for block in self.blocks():
            yield from self.decode(block)

    def lines(self) -> Iterator[BoomLine]:
        for block in self.log_blocks():
            start, create_time, number = block.second * 1000, block.create_time, block.block_number
            for index, (ms, message) in enumerate(zip(block.milliseconds, block.messages, strict=True)):
                yield BoomLine(start + ms, create_time, number, index, message)

    def _read_block(self) -> RawBlock:
        source, start = self._input, self._input.position
        records, records_raw = source.read_long("the number of records")
        if records < 0:
            source.fail(start, f"found a block of {records} records")
        size_at = source.position
        size, size_raw = source.read_long("the size of a block")
        if size < 0:
            source.fail(size_at, f"found a block of {size} bytes")
        data = source.read(size, "a block")
        marker_at = source.position
        marker = source.read(MARKER_SIZE, "a sync marker")
        if marker != self.header.marker:
            source.fail(marker_at, f"found sync marker {marker.hex()}, wanted {self.header.marker.hex()}")
        sizes = records_raw + size_raw
        return RawBlock(start=start, end=source.position, records=records, frame=sizes + data, data_start=len(sizes))

    def decode(self, block: RawBlock) -> Iterator[LogBlock]:
        data_at = block.start + block.data_start
        try:
            data = unpack(block.data) if self.header.codec == "deflate" else bytes(block.data)
            position = 0
            for _ in range(block.records):
                log_block, position = _decode_log_block(data, position, self.header.has_event_id)
                yield log_block
        except _Malformed as error:
            self._input.fail(data_at, f"{error} of the block's {len(data)} bytes of records")
        except ValueError as error:
            self._input.fail(data_at, str(error))
        if position != len(data):
            self._input.fail(data_at, f"found {len(data) - position} bytes behind the block's {block.records} records")


def read_blocks(source: Source, name: str) -> Iterator[RawBlock]:
    return BoomReader(source, name).blocks()


def read_lines(source: Source, name: str) -> Iterator[BoomLine]:
    return BoomReader(source, name).lines()


class _Malformed(Exception):
    """The records of a block are not what the schema says."""


class _Input:
    """A source that knows its name and where it stands."""

    def __init__(self, source: Source, name: str) -> None:
        self._source = source
        self._name = name
        self._ahead = b""
        self._taken = 0
        self.position = 0

    def is_at_end(self) -> bool:
        if self._taken == len(self._ahead):
            self._ahead, self._taken = self._source.read(_READ_SIZE), 0
        return not self._ahead

    def read(self, size: int, what: str) -> bytes:
        """Exactly so many bytes; a size that lies costs no more memory than the file has bytes."""
        start, parts, missing = self.position, [], size
        while missing and not self.is_at_end():
            part = self._ahead[self._taken : self._taken + missing]
            parts.append(part)
            missing -= len(part)
            self._taken += len(part)
            self.position += len(part)
        if missing:
            self.fail(start, f"{what} is cut: found {size - missing} bytes, wanted {size}")
        return b"".join(parts)

    def read_long(self, what: str) -> tuple[int, bytes]:
        start, raw = self.position, self.read(1, what)
        while raw[-1] > 0x7F:
            if len(raw) == _LONGEST_LONG:
                self.fail(start, f"{what} is no Avro long: {raw.hex()}")
            raw += self.read(1, what)
        return _decode_long(raw, 0)[0], raw

    def read_bytes(self, what: str) -> bytes:
        start = self.position
        size, _ = self.read_long(what)
        if not 0 <= size <= _LONGEST_METADATA:
            self.fail(start, f"found {what} of {size} bytes")
        return self.read(size, what)

    def fail(self, position: int, problem: str) -> NoReturn:
        raise CorruptFile(f"Cannot read {self._name}: at byte {position}: {problem}")


def _read_header(source: _Input) -> BoomHeader:
    if source.is_at_end():
        source.fail(0, "the file is empty; wanted an Avro header")
    magic = source.read(len(MAGIC), "the magic number")
    if magic != MAGIC:
        source.fail(0, f"found {magic!r}; wanted {MAGIC!r}, the beginning of an Avro file")
    metadata_at = source.position
    metadata = _read_metadata(source)
    shape = _shape_of(metadata.get(b"avro.schema", b""))
    if shape not in (_SHAPE, _SHAPE_WITH_EVENT_ID):
        source.fail(metadata_at, "the schema is not that of a boom file")
    codec = metadata.get(b"avro.codec", b"null")
    if codec not in _CODECS:
        source.fail(metadata_at, f"found codec {codec!r}; wanted deflate or null")
    marker = source.read(MARKER_SIZE, "the header's sync marker")
    return BoomHeader(
        size=source.position, marker=marker, codec=codec.decode(), has_event_id=shape == _SHAPE_WITH_EVENT_ID
    )


def _read_metadata(source: _Input) -> dict[bytes, bytes]:
    metadata: dict[bytes, bytes] = {}
    while True:
        start = source.position
        count, _ = source.read_long("the number of metadata entries")
        if count == 0:
            return metadata
        if count < 0:
            source.read_long("the size of the metadata")
        if abs(count) > _LONGEST_METADATA:
            source.fail(start, f"found {count} metadata entries")
        for _ in range(abs(count)):
            key = source.read_bytes("a metadata key")
            metadata[key] = source.read_bytes("a metadata value")


def _shape_of(schema: bytes) -> object:
    """What decides how records are decoded, whatever the text looks like; None when it is no schema."""
    try:
        return _without_remarks(json.loads(schema))
    except ValueError:
        return None


def _without_remarks(schema: object) -> object:
    if isinstance(schema, dict):
        return {key: _without_remarks(schema[key]) for key in _SHAPING_KEYS if key in schema}
    if isinstance(schema, list):
        return [_without_remarks(part) for part in schema]
    return schema


_SHAPE: Final = _shape_of(SCHEMA.encode())
_SHAPE_WITH_EVENT_ID: Final = _shape_of(SCHEMA_WITH_EVENT_ID.encode())


def _decode_log_block(data: bytes, position: int, has_event_id: bool) -> tuple[LogBlock, int]:
    second, position = _decode_long(data, position)
    create_time, position = _decode_long(data, position)
    block_number, position = _decode_long(data, position)
    milliseconds: list[int] = []
    messages: list[bytes] = []
    while True:
        count, position = _decode_long(data, position)
        if count == 0:
            return LogBlock(second, create_time, block_number, milliseconds, messages), position
        if count < 0:  # Avro lets a writer put the size in bytes behind a negated count.
            _, position = _decode_long(data, position)
        for _ in range(abs(count)):
            ms, position = _decode_long(data, position)
            if not -1000 < ms < 1000:  # Java's remainder of a time before 1970 is negative.
                raise _Malformed(f"found {ms} milliseconds at byte {position}")
            if has_event_id:
                _, position = _decode_long(data, position)
            size, position = _decode_long(data, position)
            end = position + size
            if size < 0 or end > len(data):
                raise _Malformed(f"found a line of {size} bytes at byte {position}")
            milliseconds.append(ms)
            messages.append(unescape(data[position:end]))
            position = end


def _decode_long(data: bytes, position: int) -> tuple[int, int]:
    """The long at a position, and the position behind it."""
    start, value, shift = position, 0, 0
    try:
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), position
            shift += 7
            if shift > 63:
                raise _Malformed(f"found no Avro long at byte {start}")
    except IndexError:
        raise _Malformed(f"a number is cut at byte {start}") from None
