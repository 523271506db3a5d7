"""What people wrote into their messages is in no log of any level and process; what a line is about is in each."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from tests.pipeline import FIRST, Pipeline, build
from tests.services import Sent, unique, visible_lines

from tidemark.names import Hour, isoformat
from tidemark.stack import Stack
from tidemark.stack.processes import plain_environment

SECOND = Hour(FIRST.end_ms)
BEYOND_9999 = 260_000_000_000_000

# Every Python process below, Spark's workers too, logs all that anything says, and says that it does.
VERBOSE = """
import logging, os
logging.basicConfig(level=logging.DEBUG, format="%(name)s|%(message)s")
logging.debug("this process logs everything: %s", os.getpid())
"""

# The damage, between consume and archive, is told with its reason.
RUN = """
import sys
from pyspark.sql import SparkSession
from tidemark.config import load_stream
from tidemark.drive.archive import archive_stream
from tidemark.drive.consume import consume_interval
from tidemark.drive.plan import plan_interval
from tidemark.drive.publish import publish_stream
from tidemark.environment import connection_from_environment, streams_file
from tidemark.names import Hour, Interval, Task
from tidemark.storage import open_storage

name, hour, damage = sys.argv[1], Hour.parse(sys.argv[2]), len(sys.argv) > 3
stream, task = load_stream(streams_file(), name), Task(name="test", attempt=1)
interval = Interval(hour.start_ms, hour.end_ms)
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("ALL")
plan_interval(stream, interval, connection_from_environment, task)
consume_interval(stream, interval, connection_from_environment, task, lambda: spark)
if damage:
    storage = open_storage(stream.root, connection_from_environment)
    path = next(found.path for found in storage.list(f"{hour.day}/{hour.hh}/_incoming"))
    data = storage.read(path)
    storage.delete(path)
    storage.create(path, data[:200] + data[220:])
archive_stream(stream, connection_from_environment, task, lambda: spark)
publish_stream(stream, connection_from_environment, task)
"""


def run(pipeline: Pipeline, folder: Path, hour: Hour, *options: str) -> str:
    """All that the stages of the hour print, with Spark's JVM and workers."""
    (folder / "sitecustomize.py").write_text(VERBOSE)
    stream = pipeline.stream
    settings = {"cluster": "main", "topic": stream.topic, "root": stream.root, "owner": "test"}
    settings |= {"timestamp": "message", "offset_reset": "earliest"}
    (folder / "streams.yaml").write_text(json.dumps({"streams": {stream.name: settings}}))
    environment = {
        **plain_environment(),
        **pipeline.stack.environment(),
        "PYTHONPATH": str(folder),
        "PYSPARK_SUBMIT_ARGS": "--master local[2] pyspark-shell",
        "TIDEMARK_STREAMS": str(folder / "streams.yaml"),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN, stream.name, str(hour), *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    told = done.stdout.decode(errors="replace")
    assert done.returncode == 0, told[-5000:]
    return told


def forms(secret: bytes) -> Iterator[str]:
    """As it would look in a text: itself, in hexadecimal, inside of a larger base64."""
    yield secret.decode()
    yield secret.hex()
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + secret).decode()
        yield encoded[4:-4]


def test_no_log_of_any_process_at_any_level_has_a_message_and_each_line_says_what_it_is_about(
    stack: Stack, spark: SparkSession, tmp_path: Path
) -> None:
    secret = unique("private").encode()
    pipeline = build(stack, spark, "hdfs", "/quiet", partitions=2)

    def line(time_ms: int, text: bytes = b"", partition: int = 0) -> Sent:
        return Sent(
            partition=partition, time_ms=FIRST.start_ms, value=isoformat(time_ms).encode() + b" " + secret + text
        )

    odd = [
        Sent(partition=0, time_ms=FIRST.start_ms, value=secret + b" without a time", key=secret),
        Sent(partition=0, time_ms=BEYOND_9999, value=b"\xff\xfe" + secret),
        Sent(partition=0, time_ms=1000, value=secret + b" from 1970"),
        Sent(partition=1, time_ms=FIRST.start_ms, value=b"2026-99-99T99:99:99Z " + secret),
        line(FIRST.start_ms, b"x" * 100_000),
    ]
    pipeline.topic.send([line(FIRST.start_ms + n, partition=n % 2) for n in range(50)] + odd)
    told = run(pipeline, tmp_path, FIRST)
    assert any(secret in message for _, message in visible_lines(pipeline.storage))
    pipeline.topic.send([line(FIRST.start_ms)] + [line(SECOND.start_ms + n, partition=n % 2) for n in range(50)])
    pipeline.topic.expire_before(1, 40)
    told += run(pipeline, tmp_path, SECOND, "damage")

    # It is as loud as it gets: the driver, workers, and Spark itself.
    assert len({text for text in told.splitlines() if "this process logs everything" in text}) >= 4
    assert " TRACE " in told
    assert " DEBUG " in told
    assert "is a gap of the hour until a rerun" in told
    assert [form for form in forms(secret) if form in told] == []

    ours = [text for text in told.splitlines() if text.startswith("tidemark.")]
    assert [text for text in ours if f"stream={pipeline.stream.name}" not in text] == []
    about = {text.split("|")[0]: text for text in ours}
    assert "shift=" in about["tidemark.drive.consume"]
    assert "hour=" in about["tidemark.archive.hours"]
    assert "hour=" in about["tidemark.drive.publish"]
    assert any("gap: records are lost" in text and "shard=0001-1" in text for text in ours)
