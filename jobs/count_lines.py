"""Spark entry point of the downstream example: count an hour's lines, from the files that its flag names."""

import argparse

from pyspark.sql import SparkSession

from tidemark import logs
from tidemark.boom.spark import read_boom
from tidemark.config import load_stream
from tidemark.drive.services import services
from tidemark.environment import connection_from_environment, streams_file
from tidemark.errors import DataLoss
from tidemark.names import Hour, Task
from tidemark.publish.ask import ready_revision
from tidemark.publish.flag import read_hour_flag
from tidemark.storage import open_storage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--hour", required=True, type=Hour.parse)
    parser.add_argument("--task", required=True)
    parser.add_argument("--attempt", required=True, type=int)
    parser.add_argument("--timeout-s", type=float, help="after so many seconds the job holds nothing any more")
    asked = parser.parse_args()
    logs.configure()
    stream = load_stream(streams_file(), asked.stream)
    storage = open_storage(stream.root, connection_from_environment)
    task = Task(name=asked.task, attempt=asked.attempt, timeout_s=asked.timeout_s)
    with services(stream, connection_from_environment, task) as around:
        flag = read_hour_flag(storage, asked.hour, ready_revision(around.client, stream.name, asked.hour))
    files = [storage.uri(file["path"]) for file in flag["files"]]
    found = read_boom(SparkSession.builder.getOrCreate(), files).count() if files else 0
    if found != flag["counts"]["lines"]:
        raise DataLoss(
            f"Cannot trust {stream.name}/{asked.hour}: counted {found}, the flag says {flag['counts']['lines']}"
        )
    logs.logger("count_lines", stream=stream.name, hour=asked.hour).info("counted", extra={"lines": found})


if __name__ == "__main__":
    main()
