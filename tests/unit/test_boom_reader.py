import io
import json
import random
import zlib
from pathlib import Path

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.boom_files import SECOND_MS, read_boom, write_boom

from tidemark.boom.format import MARKER_SIZE, SCHEMA, SCHEMA_WITH_EVENT_ID, encode_long
from tidemark.boom.reader import BoomReader, RawBlock, read_blocks, read_lines
from tidemark.boom.verify import verify
from tidemark.errors import CorruptFile

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = ["kaboom-badbytes", "kaboom-ordered", "logdriver-eventid"]
LINES = [(SECOND_MS + number * 300, b"host%d line %d" % (number % 7, number)) for number in range(400)]
FILE, SUMMARY = write_boom(LINES)
HEADER = FILE[: SUMMARY.blocks[0].start]
MARKER = HEADER[-MARKER_SIZE:]
LARGE_LINES = [(SECOND_MS + number, random.Random(number).randbytes(2000)) for number in range(3000)]
LARGE_FILE, LARGE_SUMMARY = write_boom(LARGE_LINES)


def block_of(records: int, data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed: bytes = packer.compress(data) + packer.flush()
    return encode_long(records) + encode_long(len(packed)) + packed + MARKER


def record_of(*longs: int) -> bytes:
    return b"".join(map(encode_long, longs))


@pytest.mark.parametrize("name", NAMES)
def test_golden_file_is_read_exactly_as_its_tsv_says(name: str) -> None:
    with (GOLDEN / f"{name}.bm").open("rb") as source:
        rows = [b"%d\t%b\n" % (line.time_ms, line.message) for line in read_lines(source, name)]
    assert b"".join(rows) == (GOLDEN / f"{name}.tsv").read_bytes()


@pytest.mark.parametrize("name", NAMES[1:])
def test_golden_file_is_read_as_a_strict_avro_reader_reads_it(name: str) -> None:
    data = (GOLDEN / f"{name}.bm").read_bytes()
    wanted = [
        (record["second"] * 1000 + line["ms"], record["createTime"], record["blockNumber"], index)
        for record in fastavro.reader(io.BytesIO(data))
        if isinstance(record, dict)
        for index, line in enumerate(record["logLines"])
    ]
    found = read_lines(io.BytesIO(data), name)
    assert [(line.time_ms, line.create_time, line.block_number, line.index) for line in found] == wanted


@pytest.mark.parametrize("codec", ["null", "deflate"])
@pytest.mark.parametrize("schema", [SCHEMA, SCHEMA_WITH_EVENT_ID])
def test_files_of_other_writers_are_read_whatever_codec_and_schema(codec: str, schema: str) -> None:
    sink = io.BytesIO()
    lines = [{"ms": number, "message": f"line {number}"} for number in range(100)]
    record = {"second": 7, "createTime": 1, "blockNumber": 0, "logLines": lines}
    fastavro.writer(sink, json.loads(schema), [record], codec=codec)
    found = read_lines(io.BytesIO(sink.getvalue()), "x.bm")
    assert [(line.time_ms, line.message) for line in found] == [
        (7000 + number, b"line %d" % number) for number in range(100)
    ]


def test_arrays_in_several_sized_pieces_are_read() -> None:
    line = record_of(5, 1) + b"a"
    pieces = record_of(-1, len(line)) + line + record_of(2) + line + line + record_of(0)
    data = HEADER + block_of(1, record_of(1, 2, 3) + pieces)
    assert read_boom(data) == [(1005, b"a")] * 3


def test_reading_takes_small_answers_of_the_source() -> None:
    class Trickle(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or 0, 3))

    lines = read_lines(Trickle(FILE), "x.bm")
    assert [(line.time_ms, line.message) for line in lines] == LINES


def test_blocks_tile_the_file_behind_the_header() -> None:
    reader = BoomReader(io.BytesIO(LARGE_FILE), "x.bm")
    blocks: list[RawBlock] = list(reader.blocks())
    ends = [reader.header.size, *(block.end for block in blocks)]
    assert [block.start for block in blocks] == ends[:-1]
    assert ends[-1] == len(LARGE_FILE)
    assert len(blocks) > 2


def test_an_empty_file_is_an_error() -> None:
    with pytest.raises(CorruptFile, match=r"Cannot read x\.bm: at byte 0: the file is empty"):
        read_boom(b"")


def test_a_file_cut_at_any_byte_is_found_unless_between_blocks() -> None:
    for size in range(len(FILE)):
        if size == len(HEADER):
            assert read_boom(FILE[:size]) == []
        else:
            with pytest.raises(CorruptFile, match=r"Cannot read x\.bm: at byte \d+: "):
                read_boom(FILE[:size])


def test_a_file_cut_between_blocks_is_what_verify_says_it_cannot_see() -> None:
    cut = LARGE_FILE[: LARGE_SUMMARY.blocks[0].end]
    found = verify(io.BytesIO(cut), "x.bm")
    assert found.is_whole
    assert found.lines == LARGE_SUMMARY.blocks[0].lines
    assert found.digest != LARGE_SUMMARY.digest


@given(st.integers(0, len(FILE) - 1), st.integers(1, 255))
def test_an_altered_byte_is_an_error_or_changes_the_digest(place: int, change: int) -> None:
    altered = bytearray(FILE)
    altered[place] ^= change
    found = verify(io.BytesIO(bytes(altered)), "x.bm")
    is_framing = place < len(HEADER) or place >= len(FILE) - MARKER_SIZE
    assert not (found.is_whole and is_framing)
    assert not found.is_whole or found.digest != SUMMARY.digest


@given(st.binary(min_size=1, max_size=200))
def test_bytes_behind_the_last_block_are_an_error(garbage: bytes) -> None:
    with pytest.raises(CorruptFile, match=r"Cannot read x\.bm: at byte \d+"):
        read_boom(FILE + garbage)


@given(st.binary(max_size=300))
def test_random_records_are_decoded_or_refused_and_never_break_the_reader(data: bytes) -> None:
    found = verify(io.BytesIO(HEADER + block_of(1, data)), "x.bm")
    assert found.is_whole or found.error


GOOD = record_of(1, 2, 3, 1, 5, 1) + b"a" + record_of(0)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"PK\x03\x04" + FILE[4:], "wanted b'Obj"),
        (HEADER.replace(b"logBlock", b"logBlack"), "the schema is not that of a boom file"),
        (HEADER.replace(b"deflate", b"deflatf"), "found codec b'deflatf'"),
        (HEADER + block_of(1, GOOD)[:-1] + b"?", "found sync marker"),
        (HEADER + record_of(-1, 5), "found a block of -1 records"),
        (HEADER + record_of(1, -5), "found a block of -5 bytes"),
        (HEADER + b"\xff" * 11, "is no Avro long"),
        (HEADER + record_of(1, 2**40), "a block is cut: found 0 bytes, wanted 1099511627776"),
        (HEADER + record_of(1, 3) + b"\xff\xff\xff" + MARKER, "do not inflate"),
        (HEADER + record_of(1, 2) + b"\x03\x00" + MARKER, "a number is cut at byte 0"),
        (HEADER + record_of(1, 3) + b"\x03\x00!" + MARKER, "1 bytes follow the deflated data"),
        (
            HEADER + record_of(1, 8) + b"\x03\x00\x00\x00\x00\x01??" + MARKER,
            "6 bytes follow the deflated data",
        ),
        (HEADER + record_of(1, 1) + b"\x4b" + MARKER, "the stream does not end"),
        (HEADER + block_of(1, GOOD + b"!"), "found 1 bytes behind the block's 1 records"),
        (HEADER + block_of(2, GOOD), "a number is cut"),
        (HEADER + block_of(0, GOOD), "bytes behind the block's 0 records"),
        (HEADER + block_of(1, record_of(1, 2, 3, 1, 5, 9) + b"a"), "found a line of 9 bytes"),
        (HEADER + block_of(1, record_of(1, 2, 3, 1, 5, -9) + b"a"), "found a line of -9 bytes"),
        (HEADER + block_of(1, record_of(1, 2, 3, 1, 1000, 0)), "found 1000 milliseconds"),
        (HEADER + block_of(1, b"\xff" * 20), "found no Avro long"),
    ],
)
def test_damage_is_named_with_file_and_byte(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptFile, match=rf"^Cannot read x\.bm: at byte \d+: .*{problem}"):
        read_boom(data)
    assert not verify(io.BytesIO(data), "x.bm").is_whole


def test_lines_before_the_damage_are_still_given() -> None:
    damaged = LARGE_FILE[: LARGE_SUMMARY.blocks[1].end - 1]
    lines = read_lines(io.BytesIO(damaged), "x.bm")
    assert [next(lines).time_ms for _ in range(LARGE_SUMMARY.blocks[0].lines)]
    with pytest.raises(CorruptFile):
        list(lines)


def test_raw_blocks_are_given_without_unpacking() -> None:
    nonsense = record_of(3, 4) + b"junk" + MARKER
    block = next(read_blocks(io.BytesIO(HEADER + nonsense), "x.bm"))
    assert (block.records, bytes(block.data), block.frame) == (3, b"junk", nonsense[:-MARKER_SIZE])
