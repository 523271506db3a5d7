import subprocess
import sys
from io import BytesIO
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidemark.boom.escape import escape, unescape
from tidemark.boom.reader import read_blocks
from tidemark.boom.spark import read_boom, unescape_column
from tidemark.boom.writer import BoomWriter
from tidemark.errors import CorruptFile

GOLDEN = Path(__file__).parents[1] / "golden"

RAW = [
    b"",
    b"plain",
    "Grüße, 世界 😀".encode(),
    bytes(range(256)),
    b"\xff\xfe\xc3( raw",
    b"\xee\xbf\xb0 and \xee\xbe\x80: private code points",
    b"\xee\xbf\xae\xee\xbe\xbf\xee\xbe\xb0",
    b"\xee\xbf",
    b"\xee\xbe\xbf\xb0\xee",
    b"\x9e\xeb\xf8\xae\xeb\xfa\xbe\xee\xbf\xa0",
    b"\xed\xb2\x80 a surrogate, not text",
    "îěëş".encode("iso-8859-2"),
]


def lines_of(frame: DataFrame) -> list[tuple[int, bytes]]:
    rows = frame.orderBy("timestamp", "create_time", "block_number", "index").select(
        F.unix_millis("timestamp").alias("ms"), F.col("message").cast("binary").alias("bytes")
    )
    return [(row.ms, bytes(row.bytes)) for row in rows.collect()]


def lines_of_tsv(name: str) -> list[tuple[int, bytes]]:
    rows = [row.split(b"\t", 1) for row in (GOLDEN / name).read_bytes().splitlines()]
    return [(int(time), message) for time, message in rows]


def write_boom(path: Path, messages: list[bytes], times: list[int]) -> None:
    with path.open("wb") as sink:
        writer = BoomWriter(sink, name=path.name, create_time_ms=7, compression="fast")
        writer.write(pa.array(times), pa.array(messages, pa.binary()), pa.array(range(len(messages))))
        writer.close()


def write_blocks(path: Path) -> bytes:
    """A file of some blocks: its bytes."""
    write_boom(path, [Random(number).randbytes(2000) for number in range(1500)], list(range(1500)))
    return path.read_bytes()


@pytest.mark.parametrize("name", ["kaboom-badbytes", "kaboom-ordered", "logdriver-eventid"])
def test_golden_file_has_exactly_the_lines_of_its_tsv(spark: SparkSession, name: str) -> None:
    assert lines_of(read_boom(spark, [str(GOLDEN / f"{name}.bm")])) == lines_of_tsv(f"{name}.tsv")


def test_files_with_and_without_event_id_are_read_together(spark: SparkSession) -> None:
    names = ("kaboom-ordered", "logdriver-eventid")
    frame = read_boom(spark, [str(GOLDEN / f"{name}.bm") for name in names])
    wanted = [line for name in names for line in lines_of_tsv(f"{name}.tsv")]
    assert sorted(lines_of(frame)) == sorted(wanted)


def test_columns_and_their_types_are_the_contract(spark: SparkSession) -> None:
    frame = read_boom(spark, [str(GOLDEN / "kaboom-ordered.bm")])
    assert frame.dtypes == [
        ("timestamp", "timestamp"),
        ("message", "string"),
        ("create_time", "bigint"),
        ("block_number", "bigint"),
        ("index", "int"),
        ("second", "bigint"),
        ("ms", "bigint"),
    ]


def test_our_file_is_read_and_unescaped_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "ours.bm"
    times = [-1500, *range(1399482308123, 1399482308123 + len(RAW) - 1)]
    write_boom(path, RAW, times)
    frame = read_boom(spark, [str(path)])
    assert lines_of(frame) == list(zip(times, map(escape, RAW), strict=True))
    ordered = frame.orderBy("block_number", "index")
    rows = ordered.select(unescape_column(F.col("message")).alias("bytes")).collect()
    assert [bytes(row.bytes) for row in rows] == RAW


def test_what_is_not_text_is_left_as_it_is_like_unescape_leaves_it(spark: SparkSession) -> None:
    raw = [b"\xee\xbe\x80 \xff", b"\xed\xa0\x80\xee\xbf\x80", b"text \xee\xbe\x80"]
    frame = spark.createDataFrame([(bytearray(value),) for value in raw], "raw binary")
    message = F.col("raw").cast("string")
    rows = frame.select(unescape_column(message).alias("bytes")).collect()
    assert [bytes(row.bytes) for row in rows] == [unescape(value) for value in raw]


@pytest.mark.parametrize("missing", [1, 16, 17, 200_000])
def test_a_file_that_is_cut_is_an_error_that_names_it(spark: SparkSession, tmp_path: Path, missing: int) -> None:
    path = tmp_path / "cut.bm"
    path.write_bytes(write_blocks(path)[:-missing])
    with pytest.raises(Exception, match=r"FAILED_READ_FILE.*cut\.bm"):
        read_boom(spark, [str(path)]).count()


@pytest.mark.parametrize("left", [1, 4, 5])
def test_a_file_that_is_cut_within_or_behind_the_two_sizes_of_its_last_block_is_an_error(
    spark: SparkSession, tmp_path: Path, left: int
) -> None:
    path = tmp_path / "cut.bm"
    data = write_blocks(path)
    *_, last = read_blocks(BytesIO(data), path.name)
    assert last.data_start == 5, "one byte counts its records, four its bytes"
    path.write_bytes(data[: last.start + left])
    with pytest.raises(Exception, match=r"FAILED_READ_FILE.*cut\.bm"):
        read_boom(spark, [str(path)]).count()


@pytest.mark.parametrize("asked", ["x/empty.bm", "x", "x/*.bm"])
def test_an_empty_file_is_an_error_that_names_it_beside_a_whole_one_too(
    spark: SparkSession, tmp_path: Path, asked: str
) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    write_boom(folder / "whole.bm", [b"a"], [1])
    (folder / "empty.bm").touch()
    told = rf"Cannot read file:{folder}/empty\.bm: at byte 0: the file is empty; wanted an Avro header"
    with pytest.raises(CorruptFile, match=told):
        read_boom(spark, [str(folder / "whole.bm"), str(tmp_path / asked)])


def test_empty_files_that_no_reader_sees_are_no_error(spark: SparkSession, tmp_path: Path) -> None:
    write_boom(tmp_path / "whole.bm", [b"a"], [1])
    (tmp_path / "_READY").touch()
    assert read_boom(spark, [str(tmp_path)]).count() == 1


def test_no_python_runs_in_the_path_of_a_row(spark: SparkSession) -> None:
    frame = read_boom(spark, [str(GOLDEN / "kaboom-ordered.bm")])
    plan = frame.select(unescape_column(F.col("message")))._jdf.queryExecution().executedPlan().toString()
    assert "Python" not in plan


def test_import_of_the_package_does_not_import_pyspark() -> None:
    code = "import sys, tidemark.boom, tidemark.cli.main; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
