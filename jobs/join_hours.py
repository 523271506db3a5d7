"""Spark entry point of a downstream example: two streams' lines of one hour, minute by minute side by side."""

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

from tidemark import logs
from tidemark.boom.spark import read_boom
from tidemark.config import load_stream
from tidemark.environment import connection_from_environment, streams_file
from tidemark.errors import DataLoss
from tidemark.ledger.zookeeper import open_session
from tidemark.names import Hour
from tidemark.publish.read import newest_flag
from tidemark.storage import open_storage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--other", required=True)
    parser.add_argument("--hour", required=True, type=Hour.parse)
    asked, _ = parser.parse_known_args()
    logs.configure()
    spark = SparkSession.builder.getOrCreate()
    ours, our_lines = lines_by_minute(spark, asked.stream, asked.hour, "ours")
    theirs, their_lines = lines_by_minute(spark, asked.other, asked.hour, "theirs")
    rows = ours.join(theirs, "minute", "full_outer").orderBy("minute").collect()
    found = sum(row["ours"] or 0 for row in rows), sum(row["theirs"] or 0 for row in rows)
    if found != (our_lines, their_lines):
        raise DataLoss(
            f"Cannot trust {asked.stream} and {asked.other}/{asked.hour}: counted {found[0]} and {found[1]}, "
            f"the flags say {our_lines} and {their_lines}"
        )
    log = logs.logger("join_hours", stream=asked.stream, hour=asked.hour)
    log.info("joined", extra={"other": asked.other, "minutes": len(rows), "lines": found[0], "other_lines": found[1]})


def lines_by_minute(spark: SparkSession, name: str, hour: Hour, column: str) -> tuple[DataFrame, int]:
    """Of the files that the hour's newest flag names, with the number of lines that it promises."""
    stream = load_stream(streams_file(), name)
    storage = open_storage(stream.root, connection_from_environment)
    with open_session(connection_from_environment) as client:
        flag = newest_flag(client, name, hour, storage)
    if not flag.files:
        return spark.createDataFrame([], f"minute timestamp, {column} long"), flag.lines
    lines = read_boom(spark, [storage.uri(path) for path in flag.files])
    minute = F.date_trunc("minute", "timestamp").alias("minute")
    return lines.groupBy(minute).agg(F.count("*").alias(column)), flag.lines


if __name__ == "__main__":
    main()
