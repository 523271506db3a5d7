"""Spark entry point of a downstream example: two streams' lines of one hour, minute by minute side by side."""

import argparse
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row, SparkSession
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
    ours, theirs = files_of(asked.stream, asked.hour), files_of(asked.other, asked.hour)
    rows = join(ours.uris, theirs.uris) if ours.uris or theirs.uris else []
    found = sum(row["ours"] or 0 for row in rows), sum(row["theirs"] or 0 for row in rows)
    if found != (ours.lines, theirs.lines):
        raise DataLoss(
            f"Cannot trust {asked.stream} and {asked.other}/{asked.hour}: counted {found[0]} and {found[1]}, "
            f"the flags say {ours.lines} and {theirs.lines}"
        )
    log = logs.logger("join_hours", stream=asked.stream, hour=asked.hour)
    log.info("joined", extra={"other": asked.other, "minutes": len(rows), "lines": found[0], "other_lines": found[1]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """What the hour's newest flag names, and how many lines it promises."""

    uris: list[str]
    lines: int


def files_of(name: str, hour: Hour) -> Files:
    stream = load_stream(streams_file(), name)
    storage = open_storage(stream.root, connection_from_environment)
    with open_session(connection_from_environment) as client:
        flag = newest_flag(client, name, hour, storage)
    return Files(uris=[storage.uri(path) for path in flag.files], lines=flag.lines)


def join(ours: list[str], theirs: list[str]) -> list[Row]:
    spark = SparkSession.builder.getOrCreate()
    left, right = lines_by_minute(spark, ours, "ours"), lines_by_minute(spark, theirs, "theirs")
    return left.join(right, "minute", "full_outer").orderBy("minute").collect()


def lines_by_minute(spark: SparkSession, uris: list[str], column: str) -> DataFrame:
    if not uris:
        return spark.createDataFrame([], f"minute timestamp, {column} long")
    minute = F.date_trunc("minute", "timestamp").alias("minute")
    return read_boom(spark, uris).groupBy(minute).agg(F.count("*").alias(column))


if __name__ == "__main__":
    main()
