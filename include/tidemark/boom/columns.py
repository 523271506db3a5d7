"""Avro's encoding of whole columns, in numpy and Arrow."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def encode_longs(*columns: npt.NDArray[np.int64]) -> pa.LargeBinaryArray:
    """Avro's encoding of each row, the values of its columns one behind the other, as an array of large binaries."""
    values = np.column_stack(columns)
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    groups = zigzag[..., None] >> np.arange(0, 70, 7, dtype=np.uint64)
    # Not yet masked: a shifted value is zero only when no later group has a bit.
    present = groups != 0
    present[..., 0] = True
    has_next = np.zeros_like(present)
    has_next[..., :-1] = present[..., 1:]
    encoded = ((groups & 0x7F).astype(np.uint8) | (has_next.astype(np.uint8) << 7))[present]
    return large_binary(np.concatenate(([0], np.cumsum(present.sum(axis=(1, 2))))), encoded)


def large_binary(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> pa.LargeBinaryArray:
    buffers = [None, pa.py_buffer(offsets.astype(np.int64, copy=False)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
