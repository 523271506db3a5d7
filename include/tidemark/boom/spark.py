"""Boom files as DataFrames: spark-avro and built-in functions, no Python in the path of a row."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tidemark.boom.format import SCHEMA

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
    with bytes that are not UTF-8 escaped: see `unescape_column`. A file that is cut within a block is an error.
    """
    blocks = spark.read.format("avro").option("avroSchema", SCHEMA).load(list(paths))
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


def unescape_column(message: Column) -> Column:
    """The bytes of a message before they were escaped, as `tidemark.boom.unescape`: a binary column."""
    digits = F.hex(message.cast("binary"))
    for pattern, replacement in _HEX_STEPS:
        digits = F.regexp_replace(digits, pattern, replacement)
    is_escaped = F.is_valid_utf8(message) & message.rlike(_HAS_ESCAPE)
    return F.when(is_escaped, F.unhex(digits)).otherwise(message.cast("binary"))
