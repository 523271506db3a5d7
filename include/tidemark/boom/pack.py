"""Raw deflate: quick to write (ISA-L), or small (libdeflate, and as much ISA-L as its promise leaves room for)."""

import zlib
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final

import deflate
import numpy as np
from isal import igzip_lib

from tidemark.boom.format import Compression

_FAST_LEVEL: Final = 1
_QUICK_LEVEL: Final = 2
_SMALL_LEVELS: Final = (4, 5, 6, 7)
_SURE_LEVEL: Final = 6
_REFERENCE_LEVEL: Final = 6
_SAMPLE: Final = 256 << 10
_WORTH_A_SAMPLE: Final = 1 << 20
# `small` promises at most 1.03 of zlib's level 6; a sample is a little off.
_ALLOWED: Final = 1.026

Pack = Callable[[bytes], bytes]

# glibc gives the memory of each block back to the system, and the next one pays for every page again: a tenth of
# `small`. Once it has freed a larger piece, it keeps twice as much for itself (mallopt(3), M_MMAP_THRESHOLD).
np.empty(8 << 20, np.uint8)


def packer_for(compression: Compression, first_block: bytes) -> Pack:
    """How to pack a file that begins with this block: decided by its bytes, so that a rerun packs alike."""
    if compression == "fast":
        return _pack_fast
    if len(first_block) < _WORTH_A_SAMPLE:
        return partial(_pack_small, level=_SURE_LEVEL)
    return _alternate(*_choose_level(first_block[:_SAMPLE]))


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


def _pack_fast(data: bytes, level: int = _FAST_LEVEL) -> bytes:
    return igzip_lib.compress(data, level, igzip_lib.COMP_DEFLATE)


def _pack_small(data: bytes, level: int) -> bytes:
    return bytes(deflate.deflate_compress(data, level))


def _alternate(level: int, share: float) -> Pack:
    """Pack this share of the blocks quickly, and of no beginning of the file a larger one."""
    numbers = count()

    def pack(data: bytes) -> bytes:
        number = next(numbers)
        is_quick = int((number + 1) * share) > int(number * share)
        return _pack_fast(data, _QUICK_LEVEL) if is_quick else _pack_small(data, level)

    return pack


def _choose_level(sample: bytes) -> tuple[int, float]:
    """The quickest level that keeps the promise, and the share of quick blocks that uses up what it leaves."""
    reference = len(zlib.compress(sample, _REFERENCE_LEVEL, -zlib.MAX_WBITS))
    quick = len(_pack_fast(sample, _QUICK_LEVEL)) / reference
    for level in _SMALL_LEVELS:
        size = len(_pack_small(sample, level)) / reference
        if size <= _ALLOWED:
            return level, min(1.0, (_ALLOWED - size) / (quick - size)) if quick > _ALLOWED else 1.0
    return level, 0.0
