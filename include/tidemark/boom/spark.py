"""Boom files as DataFrames: spark-avro and built-in functions, no Python in the path of a row."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tidemark.boom.format import SCHEMA
from tidemark.errors import CorruptFile

_HAS_ESCAPE: Final = "[\uef80-\uefff]"
# In hex, U+EF00 + b is EEBE and b for a b below C0, EEBF8x to EEBFBx for Cx to Fx. No step may find what an
# earlier one left: none but the last leaves an EE, and a pattern that began in mid-byte would need EB before
# a byte that does not continue it, which text never has.
_HEX_STEPS: Final = (
    ("EEBE([89AB].)", "$1"),
    ("EEBF8(.)", "C$1"),
    ("EEBF9(.)", "D$1"),
    ("EEBFB(.)", "F$1"),
    ("EEBFA(.)", "E$1"),
)


def read_boom(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """A row for each line, KaBoom's and logdriver's files too.

    Arrival order is that of timestamp, create_time, block_number, index. `message` is the text in the file,
    with bytes that are not UTF-8 escaped: see `unescape_column`. A file that is empty is an error at once, one that
    is cut within a block when it is read. Not seen: a cut exactly between two blocks, and one within the two bytes
    that count 64 log blocks or more at a block's beginning, where Avro's Java reader takes the file as ended.
    """
    blocks = spark.read.format("avro").option("avroSchema", SCHEMA).load(list(paths))
    _refuse_empty_files(blocks)
    each_line = F.posexplode("logLines").alias("index", "line")
    lines = blocks.select("second", "createTime", "blockNumber", each_line)
    return lines.select(
        F.timestamp_millis(F.col("second") * 1000 + F.col("line.ms")).alias("timestamp"),
        F.col("line.message").alias("message"),
        F.col("createTime").alias("create_time"),
        F.col("blockNumber").alias("block_number"),
        F.col("index"),
        F.col("second"),
        F.col("line.ms").alias("ms"),
    )


def _refuse_empty_files(blocks: DataFrame) -> None:
    """Spark makes no split of an empty file and would pass over it. Asks the listing that it has made already."""
    files = blocks._jdf.queryExecution().analyzed().relation().location().allFiles().iterator()
    while files.hasNext():
        file = files.next()
        if file.getLen() == 0:
            path = file.getPath().toString()
            raise CorruptFile(f"Cannot read {path}: at byte 0: the file is empty; wanted an Avro header")


def unescape_column(message: Column) -> Column:
    """The bytes of a message before they were escaped, as `tidemark.boom.unescape`: a binary column."""
    digits = F.hex(message.cast("binary"))
    for pattern, replacement in _HEX_STEPS:
        digits = F.regexp_replace(digits, pattern, replacement)
    is_escaped = F.is_valid_utf8(message) & message.rlike(_HAS_ESCAPE)
    return F.when(is_escaped, F.unhex(digits)).otherwise(message.cast("binary"))
