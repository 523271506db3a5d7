"""A driver that outlives its task: Airflow ends the task at its time-out, SparkSubmitOperator may leave the driver."""

import pytest
from pyspark.sql import SparkSession
from tests.services import KafkaTopic, Sent, connections_of, unique
from tests.waiting import wait_until

from tidemark.config import Stream
from tidemark.drive.consume import consume_interval
from tidemark.drive.plan import plan_interval
from tidemark.errors import Fenced
from tidemark.inspect.workers import WorkerView, view_workers
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.names import Hour, Interval, Shard, Task
from tidemark.stack import Stack

HOUR = Hour.parse("2026-11-10T22")
INTERVAL = Interval(HOUR.start_ms, HOUR.end_ms)
ORPHAN = Task(name="orphan", attempt=1, timeout_s=8)


def test_an_orphan_shows_its_shards_until_its_time_is_over_and_cannot_commit_then(
    stack: Stack, spark: SparkSession
) -> None:
    name = unique("orphan")
    stream = Stream(name=name, cluster="main", topic=name, root=f"hdfs:///orphan/{name}", owner="test")
    KafkaTopic(stack, name, 2).send(Sent(partition=1, time_ms=HOUR.start_ms, value=b"line") for _ in range(7))
    connections = connections_of(stack)
    plan_interval(stream, INTERVAL, connections, Task(name="plan", attempt=1))
    seen: list[WorkerView] = []

    with open_session(connections) as client:

        def orphans() -> list[WorkerView]:
            return [worker for worker in view_workers(client) if worker.task == ORPHAN.name]

        def open_spark_too_late() -> SparkSession:
            seen.extend(orphans())
            wait_until(lambda: not orphans(), "the orphan's node is gone")
            return spark

        with pytest.raises(Fenced):
            consume_interval(stream, INTERVAL, connections, ORPHAN, open_spark_too_late)
        (worker,) = seen
        assert worker.queues == (f"{name}/0001-0", f"{name}/0001-1")
        assert worker.versions == {name: 1}

        ledger = StreamLedger(client, name)
        assert ledger.head().value.open == INTERVAL.shift
        consume_interval(stream, INTERVAL, connections, Task(name="next", attempt=1), lambda: spark)
        assert ledger.head().value.open is None
        assert ledger.positions().value.shards[Shard(1, 1)].next == 7
