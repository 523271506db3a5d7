"""Spark entry point: archive every hour of a stream that is waiting for it."""

import argparse

from pyspark.sql import SparkSession

from tidemark import logs
from tidemark.config import load_stream
from tidemark.drive.archive import archive_stream
from tidemark.environment import connection_from_environment, streams_file
from tidemark.names import Task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--task", required=True, help="who asks; a later try takes the lease of an earlier one")
    parser.add_argument("--attempt", required=True, type=int)
    parser.add_argument("--timeout-s", type=float, help="after so many seconds the job holds nothing any more")
    asked = parser.parse_args()
    logs.configure()
    archive_stream(
        load_stream(streams_file(), asked.stream),
        connection_from_environment,
        Task(name=asked.task, attempt=asked.attempt, timeout_s=asked.timeout_s),
        SparkSession.builder.appName(f"tidemark archive {asked.stream}").getOrCreate,
    )


if __name__ == "__main__":
    main()
