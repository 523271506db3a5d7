"""Tidemark itself: the real consume stage, from the lease to the committed shift."""

import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from pyspark.sql import SparkSession

from bench.corpus import HOUR
from bench.session import MASTER
from tidemark.config import Stream
from tidemark.drive.consume import consume_interval
from tidemark.environment import Connections, repository_folder
from tidemark.errors import DataLoss, TidemarkError
from tidemark.manifest import manifests_of
from tidemark.names import Interval, Task, isoformat
from tidemark.stack.jars import pyspark_home
from tidemark.storage import open_storage

INTERVAL = Interval(HOUR.start_ms, HOUR.end_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to consume and where to; a name of its own, so that nobody has consumed it before."""

    name: str
    topic: str
    lines: int
    root: str
    compression: str = "small"
    timestamp: str = "kafka"

    @property
    def settings(self) -> dict[str, str]:
        return {
            "cluster": "main",
            "owner": "bench",
            "topic": self.topic,
            "root": self.root,
            "compression": self.compression,
            "timestamp": self.timestamp,
        }

    @property
    def stream(self) -> Stream:
        return Stream.model_validate({"name": self.name, **self.settings})


def consume(order: Order, connections: Connections, spark: SparkSession) -> float:
    """In seconds: session, lease, plan, read, write, commit."""
    begin = time.monotonic()
    consume_interval(order.stream, INTERVAL, connections, Task(name=order.name, attempt=1), _given(spark))
    seconds = time.monotonic() - begin
    check(order, connections)
    return seconds


def consume_cold(order: Order, connections: Connections, environment: Mapping[str, str], folder: Path) -> float:
    """In seconds, from `spark-submit` to the end of its process."""
    streams = folder / f"{order.name}.yaml"
    streams.write_text(yaml.safe_dump({"streams": {order.name: order.settings}}))
    arguments = (
        "--stream", order.name, "--start", isoformat(INTERVAL.start_ms), "--end", isoformat(INTERVAL.end_ms),
        "--task", order.name, "--attempt", "1",
    )  # fmt: skip
    job = str(repository_folder() / "jobs" / "consume.py")
    begin = time.monotonic()
    done = subprocess.run(
        [str(pyspark_home() / "bin" / "spark-submit"), "--master", MASTER, job, *arguments],
        env={**environment, "TIDEMARK_STREAMS": str(streams)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - begin
    if done.returncode:
        raise TidemarkError(f"Cannot measure the cold job: it ended with {done.returncode}:\n{done.stdout[-3000:]}")
    check(order, connections)
    return seconds


def check(order: Order, connections: Connections) -> None:
    """What was measured is what was asked for; then make room for the next."""
    storage = open_storage(order.root, connections)
    found = sum(file.lines for manifest in manifests_of(storage, [1]) for file in manifest.files)
    if found != order.lines:
        raise DataLoss(f"Cannot measure {order.name}: its manifest counts {found} lines, {order.lines} were produced")
    for status in storage.list(""):
        storage.delete(status.path, recursive=True)


def _given(spark: SparkSession) -> Callable[[], SparkSession]:
    return lambda: spark
