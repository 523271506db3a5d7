"""What `KafkaRanges.java` hands to Python: thousands of records in one row, whose cells are the buffers of arrays."""

import numpy as np
import pyarrow as pa

from tidemark.boom.escape import offsets_of


def range_of(pack: pa.RecordBatch) -> int:
    """Which of the ranges that the source was given."""
    number: int = pack.column("range")[0].as_py()
    return number


def unpack(pack: pa.RecordBatch) -> pa.RecordBatch:
    """Its records, as columns over the same memory; the value of a tombstone is null."""
    records = pack.column("records")[0].as_py()
    columns = {
        "offset": pa.Array.from_buffers(pa.int64(), records, [None, _cell(pack, "offsets")]),
        "timestamp": pa.Array.from_buffers(pa.int64(), records, [None, _cell(pack, "timestamps")]),
        "value": pa.Array.from_buffers(
            pa.binary(), records, [_validity(pack), _cell(pack, "positions"), _cell(pack, "values")]
        ),
    }
    return pa.RecordBatch.from_pydict(columns)


def _cell(pack: pa.RecordBatch, name: str) -> pa.Buffer:
    """Without the copy that a scalar would be."""
    column = pack.column(name)
    start, end = offsets_of(column)[:2].tolist()
    return column.buffers()[2].slice(start, end - start)


def _validity(pack: pa.RecordBatch) -> pa.Buffer | None:
    if pack.column("tombstones").null_count:
        return None
    is_tombstone = np.frombuffer(_cell(pack, "tombstones"), np.uint8)
    return pa.py_buffer(np.packbits(is_tombstone == 0, bitorder="little"))
