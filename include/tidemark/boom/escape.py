"""A reversible escape for bytes that are not UTF-8: an Avro string must be text, and no byte may be lost.

A byte b of 0x80…0xFF that is no part of valid UTF-8 becomes the private code point U+EF00 + b. Text that
holds such code points itself has each of their three bytes escaped, so every byte string has one escaped form
(docs/adr/0004-bytes-that-are-not-utf8.md).
"""

import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_PRIVATE: Final = re.compile("[\uef80-\uefff]")
_FIRST_BYTE: Final = 0xEE

# U+EF80…U+EFFF begin with EE BE or EE BF in UTF-8; U+DC80…U+DCFF, which Python's codecs use for single bytes,
# with ED B2 or ED B3, pairs that valid UTF-8 never holds. So two bytes replaced turn one form into the other.
_PAIRS: Final = ((b"\xee\xbe", b"\xed\xb2"), (b"\xee\xbf", b"\xed\xb3"))


def escape(raw: bytes) -> bytes:
    text = raw.decode("utf-8", "surrogateescape")
    escaped = _PRIVATE.sub(_escape_character, text).encode("utf-8", "surrogatepass")
    for private, surrogate in _PAIRS:
        escaped = escaped.replace(surrogate, private)
    return escaped


def unescape(line: bytes) -> bytes:
    """The bytes that `escape` was given. What is not UTF-8 (KaBoom's) was not escaped and stays as it is."""
    if _FIRST_BYTE not in line or not _is_text(line):
        return line
    for private, surrogate in _PAIRS:
        line = line.replace(private, surrogate)
    return line.decode("utf-8", "surrogatepass").encode("utf-8", "surrogateescape")


def escape_array(messages: pa.Array) -> pa.Array:
    """`escape` for an Arrow array of binaries; a batch that needs nothing is returned as it came."""
    data = _data_of(messages)
    if _is_ascii(data):
        return messages
    if _FIRST_BYTE not in data and _is_text_array(messages):
        return messages
    return _replace(messages, _has_byte(messages, data > 0x7F), escape)


def offsets_of(values: pa.Array) -> npt.NDArray[Any]:
    """Where each value begins in the data buffer, and where the last one ends."""
    kind = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    if len(values) == 0:
        return np.zeros(1, kind)
    return np.frombuffer(values.buffers()[1], kind)[values.offset : values.offset + len(values) + 1]


def _data_of(values: pa.Array) -> npt.NDArray[np.uint8]:
    """The bytes of all values, one after the other, without a copy."""
    buffer = values.buffers()[2]
    if len(values) == 0 or buffer is None:
        return np.zeros(0, np.uint8)
    offsets = offsets_of(values)
    return np.frombuffer(buffer, np.uint8)[offsets[0] : offsets[-1]]


def _replace(values: pa.Array, where: npt.NDArray[np.bool_], change: Callable[[bytes], bytes]) -> pa.Array:
    mask = pa.array(where)
    changed = [change(value) for value in values.filter(mask).to_pylist()]
    return pc.replace_with_mask(values, mask, pa.array(changed, values.type))


def _has_byte(values: pa.Array, hits: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """For each value, whether one of its bytes is hit."""
    offsets = offsets_of(values)
    positions = np.flatnonzero(hits) + offsets[0]
    return np.diff(np.searchsorted(positions, offsets)) > 0


def _is_ascii(data: npt.NDArray[np.uint8]) -> bool:
    return data.size == 0 or int(data.max()) < 0x80


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_text_array(values: pa.Array) -> bool:
    try:
        values.cast(pa.large_string() if pa.types.is_large_binary(values.type) else pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _escape_character(match: re.Match[str]) -> str:
    return match[0].encode().decode("ascii", "surrogateescape")
