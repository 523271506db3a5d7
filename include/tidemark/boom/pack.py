"""Raw deflate: quick to write (ISA-L), or small (libdeflate)."""

import zlib
from collections.abc import Callable
from typing import Final

import deflate
from isal import igzip_lib

from tidemark.boom.format import Compression

_FAST_LEVEL: Final = 1
_QUICKER_LEVELS: Final = (4, 5)
_REFERENCE_LEVEL: Final = 6
_SURE_LEVEL: Final = 6
_SAMPLE: Final = 64 << 10
_WORTH_A_SAMPLE: Final = 1 << 20
# `small` promises at most 1.03 of zlib's level 6: a sample is allowed less, since the rest may pack worse.
_ALLOWED: Final = 1.02

Pack = Callable[[bytes], bytes]


def packer_for(compression: Compression, first_block: bytes) -> Pack:
    """How to pack a file that begins with this block: decided by its bytes, so that a rerun packs alike."""
    if compression == "fast":
        return _pack_fast
    level = _choose_level(first_block[:_SAMPLE]) if len(first_block) > _WORTH_A_SAMPLE else _SURE_LEVEL
    return lambda data: bytes(deflate.deflate_compress(data, level))


def unpack(packed: bytes | memoryview) -> bytes:
    """Raise ValueError when the bytes are not exactly one deflate stream.

    fastavro leaves the first bytes of a zlib checksum behind it: those are taken, if they are right.
    """
    # Not isal_zlib: its decompressor does not see up to six bytes behind the end of a stream.
    inflater = igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_DEFLATE)
    try:
        data = inflater.decompress(packed)
    except igzip_lib.error as error:  # type: ignore[misc]  # isal's stub declares an instance, not a class
        raise ValueError(f"the data do not inflate: {error}") from error
    if not inflater.eof:
        raise ValueError("the data do not inflate: the stream does not end")
    if not zlib.adler32(data).to_bytes(4, "big").startswith(inflater.unused_data):
        raise ValueError(f"{len(inflater.unused_data)} bytes follow the deflated data")
    return data


def _pack_fast(data: bytes) -> bytes:
    return igzip_lib.compress(data, _FAST_LEVEL, igzip_lib.COMP_DEFLATE)


def _choose_level(sample: bytes) -> int:
    """The quickest level that packs the sample about as small as zlib does: logs differ in what they need."""
    wanted = len(zlib.compress(sample, _REFERENCE_LEVEL, -zlib.MAX_WBITS)) * _ALLOWED
    fitting = (level for level in _QUICKER_LEVELS if len(deflate.deflate_compress(sample, level)) <= wanted)
    return next(fitting, _SURE_LEVEL)
