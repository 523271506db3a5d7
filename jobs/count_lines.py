"""Spark entry point of the downstream examples: count the lines of an hour or a day, from the files its flag names."""

import argparse

from pyspark.sql import SparkSession

from tidemark import logs
from tidemark.boom.spark import read_boom
from tidemark.config import load_stream
from tidemark.environment import connection_from_environment, streams_file
from tidemark.errors import DataLoss
from tidemark.ledger.zookeeper import open_session
from tidemark.names import parse_subject
from tidemark.publish.read import newest_flag
from tidemark.storage import open_storage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--subject", required=True, type=parse_subject, help="UTC: 2026-11-15T07 or 2026-11-15")
    asked, _ = parser.parse_known_args()
    logs.configure()
    stream = load_stream(streams_file(), asked.stream)
    storage = open_storage(stream.root, connection_from_environment)
    with open_session(connection_from_environment) as client:
        flag = newest_flag(client, stream.name, asked.subject, storage)
    files = [storage.uri(path) for path in flag.files]
    found = read_boom(SparkSession.builder.getOrCreate(), files).count() if files else 0
    if found != flag.lines:
        raise DataLoss(f"Cannot trust {stream.name}/{asked.subject}: counted {found}, the flag says {flag.lines}")
    logs.logger("count_lines", stream=stream.name, hour=asked.subject).info("counted", extra={"lines": found})


if __name__ == "__main__":
    main()
