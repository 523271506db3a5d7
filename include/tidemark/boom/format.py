"""The bytes of a boom file: an Avro container of log blocks, as KaBoom's and logdriver's readers take it."""

import hashlib
from dataclasses import dataclass
from typing import Final, Literal

Compression = Literal["small", "fast"]

MAGIC: Final = b"Obj\x01"
MARKER_SIZE: Final = 16

# The merge job of hadoop-logdriver compares the schema's text and refuses a mix: not one byte may differ.
_BEFORE_EVENT_ID: Final = (
    '{"type":"record","name":"logBlock","fields":[{"name":"second","type":"long"},'
    '{"name":"createTime","type":"long"},{"name":"blockNumber","type":"long"},'
    '{"name":"logLines","type":{"type":"array","items":{"type":"record","name":"messageWithMillis",'
    '"fields":[{"name":"ms","type":"long"},'
)
_AFTER_EVENT_ID: Final = '{"name":"message","type":"string"}]}}}]}'
SCHEMA: Final = _BEFORE_EVENT_ID + _AFTER_EVENT_ID
SCHEMA_WITH_EVENT_ID: Final = _BEFORE_EVENT_ID + '{"name":"eventId","type":"int","default":0},' + _AFTER_EVENT_ID

LOG_BLOCK_LIMIT: Final = 1 << 20
AVRO_BLOCK_LIMIT: Final = 2 << 20
# Four longs of at most ten bytes stand before the lines of a log block, and one byte ends them.
LINES_LIMIT: Final = LOG_BLOCK_LIMIT - 4 * 10 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BoomBlock:
    """One Avro block. Byte range (with the sync marker) and runs of Kafka offsets are half-open.

    The CRC leaves the sync marker out: it survives a copy into another file.
    """

    start: int
    end: int
    lines: int
    runs: tuple[tuple[int, int], ...]
    min_ms: int
    max_ms: int
    crc: int


def marker_of(name: str) -> bytes:
    """The sync marker: a function of the name, so that a rerun writes the same bytes."""
    return hashlib.sha256(name.encode()).digest()[:MARKER_SIZE]


def header_of(name: str) -> bytes:
    metadata = (("avro.schema", SCHEMA), ("avro.codec", "deflate"))
    pairs = b"".join(_encode_text(key) + _encode_text(value) for key, value in metadata)
    return MAGIC + encode_long(len(metadata)) + pairs + encode_long(0) + marker_of(name)


def encode_long(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _encode_text(text: str) -> bytes:
    raw = text.encode()
    return encode_long(len(raw)) + raw
