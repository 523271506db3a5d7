"""A stream with its topic, and the stages as a user would run them without Airflow."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import pytest
from pyspark.sql import SparkSession
from tests.services import KafkaTopic, Sent, connections_of, unique

from tidemark.config import Stream
from tidemark.drive.archive import archive_stream
from tidemark.drive.consume import consume_interval
from tidemark.drive.plan import plan_interval
from tidemark.drive.publish import publish_stream
from tidemark.drive.services import Services
from tidemark.environment import Connections
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.names import HOUR_MS, Hour, Interval, Task
from tidemark.stack import Stack
from tidemark.storage import Storage, open_storage

FIRST = Hour.parse("2026-11-10T22")
TASK = Task(name="test", attempt=1)


Found = TypeVar("Found")


@contextmanager
def at(time_ms: int) -> Iterator[None]:
    """With our clock and ZooKeeper's at this time: a gap holds hours up to the time at which it is found."""
    with pytest.MonkeyPatch.context() as patched:
        for stage in ("acts", "archive", "consume", "plan", "publish"):
            patched.setattr(f"tidemark.drive.{stage}.now_ms", lambda: time_ms)
        patched.setattr(Services, "server_ms", lambda _: time_ms)
        yield


def interval_of(hour: Hour) -> Interval:
    return Interval(hour.start_ms, hour.end_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    stream: Stream
    topic: KafkaTopic
    stack: Stack
    spark: SparkSession
    storage: Storage
    connections: Connections

    def plan(self, hour: Hour) -> str:
        return plan_interval(self.stream, interval_of(hour), self.connections, TASK)

    def consume(self, hour: Hour, task: Task = TASK) -> None:
        consume_interval(self.stream, interval_of(hour), self.connections, task, lambda: self.spark)

    def archive(self) -> None:
        archive_stream(self.stream, self.connections, TASK, lambda: self.spark)

    def publish(self) -> list[str]:
        flags = publish_stream(self.stream, self.connections, TASK).published
        return [f"{flag.subject} {flag.revision}" for flag in flags]

    def run(self, hour: Hour) -> list[str]:
        self.plan(hour)
        self.consume(hour)
        self.archive()
        return self.publish()

    def ledger(self, read: Callable[[StreamLedger], Found]) -> Found:
        with open_session(self.connections) as client:
            return read(StreamLedger(client, self.stream.name))


def build(
    stack: Stack,
    spark: SparkSession,
    scheme: str,
    folder: str,
    *,
    partitions: int = 3,
    connections: Connections | None = None,
    topic_config: Mapping[str, str] | None = None,
    **settings: object,
) -> Pipeline:
    name = unique("pipeline")
    stream = Stream.model_validate(
        {"name": name, "cluster": "main", "topic": name, "root": f"{scheme}://{folder}/{name}", "owner": "test"}
        | {"compression": "fast", **settings}
    )
    return Pipeline(
        stream=stream,
        topic=KafkaTopic(stack, name, partitions, config=topic_config),
        stack=stack,
        spark=spark,
        storage=open_storage(stream.root, connections_of(stack)),
        connections=connections or connections_of(stack),
    )


def records(hour: Hour, count: int, partitions: int = 3) -> list[Sent]:
    step = HOUR_MS // count
    return [
        Sent(partition=n % partitions, time_ms=hour.start_ms + n * step, value=f"{hour} line {n}".encode())
        for n in range(count)
    ]


def expected_lines(topic: KafkaTopic) -> list[tuple[int, bytes]]:
    return sorted((when, value) for _, _, when, value in topic.read_all() if value is not None)
