"""Boom files made for tests."""

import io
from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa

from tidemark.boom.format import Compression
from tidemark.boom.reader import read_lines
from tidemark.boom.writer import BoomSummary, BoomWriter

Line = tuple[int, bytes]

SECOND_MS = 1399482308000


def write_boom(
    lines: Sequence[Line],
    *,
    name: str = "x.bm",
    compression: Compression = "fast",
    cuts: Sequence[int] = (),
    offsets: Sequence[int] | None = None,
) -> tuple[bytes, BoomSummary]:
    """The bytes of a file whose lines are handed over in batches cut at these places."""
    sink = io.BytesIO()
    writer = BoomWriter(sink, name=name, create_time_ms=5, compression=compression)
    numbers = range(len(lines)) if offsets is None else offsets
    places = [0, *cuts, len(lines)]
    for start, stop in pairwise(places):
        writer.write(
            pa.array([time for time, _ in lines[start:stop]], pa.int64()),
            pa.array([message for _, message in lines[start:stop]], pa.binary()),
            pa.array(list(numbers[start:stop]), pa.int64()),
        )
    summary = writer.close()
    return sink.getvalue(), summary


def read_boom(data: bytes, name: str = "x.bm") -> list[Line]:
    return [(line.time_ms, line.message) for line in read_lines(io.BytesIO(data), name)]
