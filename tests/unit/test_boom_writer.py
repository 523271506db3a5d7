import hashlib
import io
import json
import resource
import subprocess
import sys
import zlib
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.boom_files import SECOND_MS, Line, read_boom, write_boom

from tidemark.boom.columns import encode_longs
from tidemark.boom.escape import escape
from tidemark.boom.format import (
    AVRO_BLOCK_LIMIT,
    LINES_LIMIT,
    LOG_BLOCK_LIMIT,
    MARKER_SIZE,
    Compression,
    encode_long,
    marker_of,
)
from tidemark.boom.reader import BoomReader, read_blocks, read_lines
from tidemark.boom.writer import BoomWriter
from tidemark.errors import WrongUse

GOLDEN = Path(__file__).parents[1] / "golden"
MIB = 1 << 20

times = st.one_of(
    st.integers(SECOND_MS - 1500, SECOND_MS + 1500),
    st.integers(-3000, 3000),
    st.sampled_from([-(10**15), 10**15]),
)
messages = st.one_of(
    st.binary(max_size=20),
    st.text(max_size=10).map(str.encode),
    st.sampled_from([b"", b"\n", b"\xff" * 70, b"a" * 64, b"b" * 8192, b"c" * 20000]),
)
lines_of_all_kinds = st.lists(st.tuples(times, messages), max_size=40)


def decode_strictly(data: bytes) -> list[dict[str, Any]]:
    return [dict(record) for record in fastavro.reader(io.BytesIO(data)) if isinstance(record, dict)]


def block_sizes(data: bytes) -> list[int]:
    """About the size of each log block."""
    return [sum(len(line["message"]) + 4 for line in block["logLines"]) for block in decode_strictly(data)]


@given(lines_of_all_kinds, st.sampled_from(["small", "fast"]))
def test_lines_round_trip_in_order_of_arrival(lines: list[Line], compression: Compression) -> None:
    data, summary = write_boom(lines, compression=compression)
    assert read_boom(data) == lines
    assert summary.lines == len(lines)


@given(lines_of_all_kinds)
def test_a_strict_avro_reader_sees_the_escaped_lines(lines: list[Line]) -> None:
    data, _ = write_boom(lines)
    decoded = [
        (block["second"] * 1000 + line["ms"], line["message"])
        for block in decode_strictly(data)
        for line in block["logLines"]
    ]
    assert decoded == [(time, escape(message).decode()) for time, message in lines]


@given(lines_of_all_kinds, st.data())
def test_bytes_do_not_depend_on_how_lines_are_cut_into_batches(lines: list[Line], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(lines)), max_size=5)))
    assert write_boom(lines, cuts=cuts) == write_boom(lines)


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0, 100_000, 700_000, MIB, 3 * MIB])), max_size=9),
    st.data(),
)
def test_large_lines_do_not_depend_on_batches_either(shapes: list[tuple[int, int]], data: st.DataObject) -> None:
    lines = [(SECOND_MS + second * 1000, b"x" * size) for second, size in shapes]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(lines)), max_size=5)))
    whole = write_boom(lines)
    assert write_boom(lines, cuts=cuts) == whole
    assert read_boom(whole[0]) == lines


def test_bytes_depend_on_name_and_create_time() -> None:
    first, _ = write_boom([(1, b"a")], name="a.bm")
    second, _ = write_boom([(1, b"a")], name="b.bm")
    assert first[-MARKER_SIZE:] == marker_of("a.bm")
    assert second.replace(marker_of("b.bm"), marker_of("a.bm")) == first


def test_header_is_kabooms_up_to_the_sync_marker() -> None:
    golden = (GOLDEN / "kaboom-ordered.bm").read_bytes()
    size = BoomReader(io.BytesIO(golden), "golden").header.size
    data, _ = write_boom([])
    assert data[:-MARKER_SIZE] == golden[: size - MARKER_SIZE]
    assert data[-MARKER_SIZE:] == marker_of("x.bm")


def test_a_file_without_lines_is_a_header_that_can_be_read() -> None:
    data, summary = write_boom([])
    assert read_boom(data) == []
    assert (summary.lines, summary.min_ms, summary.first_offset, summary.blocks) == (0, None, None, ())


def test_a_log_block_holds_one_second_and_blocks_are_numbered_from_zero() -> None:
    lines = [(1999, b"a"), (1000, b"b"), (2000, b"c"), (1500, b"d"), (-1, b"e"), (-1000, b"f"), (-1001, b"g")]
    data, _ = write_boom(lines)
    blocks = decode_strictly(data)
    assert [block["second"] for block in blocks] == [1, 2, 1, -1, -2]
    assert [block["blockNumber"] for block in blocks] == [0, 1, 2, 3, 4]
    assert {block["createTime"] for block in blocks} == {5}
    assert [line["ms"] for line in blocks[3]["logLines"]] == [999, 0]


def test_log_blocks_and_avro_blocks_keep_kabooms_limits() -> None:
    lines = [(SECOND_MS + number // 100, b"%06d" % number * 50) for number in range(40_000)]
    data, summary = write_boom(lines)
    sizes = []
    for raw in read_blocks(io.BytesIO(data), "x.bm"):
        unpacked = zlib.decompress(raw.data, -zlib.MAX_WBITS)
        assert len(unpacked) <= AVRO_BLOCK_LIMIT
        sizes.append(len(unpacked))
    assert min(sizes[:-1]) > AVRO_BLOCK_LIMIT - LOG_BLOCK_LIMIT
    counts = [len(block["logLines"]) for block in decode_strictly(data)]
    size_of_a_line = 2 + 2 + 300
    assert counts[0] == LINES_LIMIT // (size_of_a_line - 1)
    assert counts[2] == LINES_LIMIT // size_of_a_line
    assert sum(counts) == summary.lines == len(lines)


def test_a_line_larger_than_a_log_block_gets_one_of_its_own() -> None:
    lines = [(0, b"a"), (1, b"b" * (MIB + 1)), (2, b"c"), (3, b"d" * 10_000_000), (4, b"e")]
    data, summary = write_boom(lines)
    assert [len(block["logLines"]) for block in decode_strictly(data)] == [1, 1, 1, 1, 1]
    assert [block.lines for block in summary.blocks] == [3, 1, 1]
    assert read_boom(data) == lines


@pytest.mark.parametrize("size", [1_048_514, 1_048_515, 1_048_516, MIB - 1, MIB])
def test_lines_that_kaboom_corrupts_round_trip(size: int) -> None:
    lines = [(0, b"before"), (0, b"x" * size), (0, b"after")]
    data, _ = write_boom(lines)
    assert read_boom(data) == lines
    assert max(block_sizes(data)) <= max(size + 20, LOG_BLOCK_LIMIT)


def test_ten_megabytes_of_bytes_that_are_not_text_round_trip() -> None:
    lines = [(0, bytes(range(256)) * 40_000)]
    data, _ = write_boom(lines)
    assert read_boom(data) == lines


def test_summary_describes_every_block() -> None:
    lines = [(SECOND_MS + number, b"%d" % number * 300) for number in range(5000)]
    offsets = [*range(100, 2050), *range(3000, 6050)]
    data, summary = write_boom(lines, offsets=offsets)
    assert summary.bytes == len(data)
    assert summary.digest == hashlib.sha256(data).hexdigest()
    assert (summary.first_offset, summary.last_offset) == (100, 6049)
    assert (summary.min_ms, summary.max_ms) == (SECOND_MS, SECOND_MS + 4999)
    raw = list(read_blocks(io.BytesIO(data), "x.bm"))
    assert [(block.start, block.end, block.crc) for block in summary.blocks] == [
        (block.start, block.end, block.crc) for block in raw
    ]
    assert len(raw) > 1
    for block, found in zip(summary.blocks, raw, strict=True):
        assert data[block.start : block.end] == found.frame + marker_of("x.bm")
        assert block.crc == zlib.crc32(data[block.start : block.end - MARKER_SIZE])
    spelled = [offset for block in summary.blocks for run in block.runs for offset in range(*run)]
    assert spelled == offsets
    assert sum(len(block.runs) for block in summary.blocks) == len(summary.blocks) + 1


def test_a_block_copied_into_another_file_with_its_marker_is_read_there() -> None:
    lines = [(number, b"%d" % number) for number in range(100)]
    data, summary = write_boom(lines)
    empty, _ = write_boom([], name="other.bm")
    block = summary.blocks[0]
    copied = empty + data[block.start : block.end - MARKER_SIZE] + marker_of("other.bm")
    assert read_boom(copied) == lines
    assert next(iter(read_blocks(io.BytesIO(copied), "other.bm"))).crc == block.crc


@pytest.mark.parametrize(
    ("times", "messages", "offsets"),
    [([1, 2], [b"a"], [1]), ([None], [b"a"], [1]), ([1], [None], [1]), ([1], [b"a"], [])],
)
def test_columns_of_different_lengths_and_nulls_are_refused(
    times: list[int | None], messages: list[bytes | None], offsets: list[int]
) -> None:
    writer = BoomWriter(io.BytesIO(), name="x.bm", create_time_ms=0, compression="fast")
    with pytest.raises(WrongUse, match=r"Cannot write lines to x\.bm"):
        writer.write(pa.array(times, pa.int64()), pa.array(messages, pa.binary()), pa.array(offsets, pa.int64()))


def test_both_binary_types_and_slices_give_the_same_bytes() -> None:
    lines = [(number, b"%d" % number) for number in range(10)]
    wanted, _ = write_boom(lines[2:8], offsets=range(2, 8))
    columns = [pa.array([time for time, _ in lines]), None, pa.array(range(10))]
    for kind in (pa.binary(), pa.large_binary()):
        columns[1] = pa.array([message for _, message in lines], kind)
        sink = io.BytesIO()
        writer = BoomWriter(sink, name="x.bm", create_time_ms=5, compression="fast")
        writer.write(*(column[2:8] for column in columns))
        writer.close()
        assert sink.getvalue() == wanted


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_longs_are_encoded_in_columns_as_one_by_one(values: list[int]) -> None:
    assert encode_longs(pa.array(values, pa.int64()).to_numpy()).to_pylist() == list(map(encode_long, values))


def corpora() -> dict[str, list[bytes]]:
    numbers = range(60_000)
    random = Random(7)
    return {
        "varied": [b"%016x took %d ms" % (random.getrandbits(64), random.randrange(5000)) for _ in numbers],
        "repetitive": [b"configure package-%d:amd64 1.2.%d" % (number % 97, number % 7) for number in numbers],
        "one value": [b"GET /healthz 200"] * len(numbers),
        "few lines": [b"status installed libc6:amd64 2.36-9+deb12u%d" % number for number in range(50)],
    }


@pytest.mark.parametrize("corpus", corpora().values(), ids=corpora())
def test_small_is_at_most_three_percent_larger_than_zlib(corpus: list[bytes]) -> None:
    data, _ = write_boom(list(enumerate(corpus)), compression="small")
    raw = list(read_blocks(io.BytesIO(data), "x.bm"))
    unpacked = [zlib.decompress(block.data, -zlib.MAX_WBITS) for block in raw]
    reference = sum(len(zlib.compress(block, 6, -zlib.MAX_WBITS)) for block in unpacked)
    assert sum(len(block.data) for block in raw) <= 1.03 * reference


MEMORY_PROGRAM = """
import json, resource
import pyarrow as pa
from tidemark.boom.writer import BoomWriter

class Nowhere:
    def write(self, data): pass

writer = BoomWriter(Nowhere(), name="x.bm", create_time_ms=5, compression="fast")
writer.write(pa.array([0]), pa.array([b"warm"]), pa.array([0]))
line = pa.array([bytes(range(128)) * 78125], pa.binary())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for offset in range(1, 201):
    writer.write(pa.array([offset]), line, pa.array([offset]))
summary = writer.close()
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"lines": summary.lines, "grown_mb": (after - before) / 1024}))
"""


def test_memory_does_not_grow_with_the_number_of_lines_of_ten_megabytes() -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY_PROGRAM], check=True, capture_output=True)
    found = json.loads(done.stdout)
    assert found["lines"] == 201
    assert found["grown_mb"] < 150


def test_one_batch_of_many_large_lines_is_written_in_parts(tmp_path: Path) -> None:
    batch = pa.array([bytes(1_000_000)] * 100, pa.large_binary())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with (tmp_path / "x.bm").open("wb") as sink:
        writer = BoomWriter(sink, name="x.bm", create_time_ms=5, compression="fast")
        writer.write(pa.array(range(100)), batch, pa.array(range(100)))
        writer.close()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100 * 1024
    with (tmp_path / "x.bm").open("rb") as source:
        assert sum(len(line.message) for line in read_lines(source, "x.bm")) == 100_000_000
