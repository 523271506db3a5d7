"""What a task does, from services to stage: the four acts that Airflow tasks and Spark entry points call.

The stages know nothing of one another; this module is where they meet.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kazoo.client import KazooClient

from tidemark.archive.hours import HourArchiver
from tidemark.config import Stream
from tidemark.consume.commit import Committer, build_manifest
from tidemark.consume.results import TaskOrder
from tidemark.environment import Connections
from tidemark.kafka import KafkaCluster, spark_options
from tidemark.ledger import paths
from tidemark.ledger.lease import LeaseTaken, StreamLease, WorkerNode, join_workers
from tidemark.ledger.records import Shift, ShiftState, Worker, dump
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.logs import logger
from tidemark.names import Interval, Task
from tidemark.plan.shift import Planner
from tidemark.publish.sweep import Published, Publisher
from tidemark.storage import Storage, open_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEASE_WAIT_S = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """One stream and the living services around it, for as long as a task runs."""

    stream: Stream
    client: KazooClient
    worker: WorkerNode
    ledger: StreamLedger
    connections: Connections

    def planner(self) -> Planner:
        return Planner(
            stream=self.stream,
            ledger=self.ledger,
            kafka=KafkaCluster(self.connections(self.stream.kafka_connection)),
            now_ms=now_ms,
            server_ms=self._server_ms,
        )

    def lease(self) -> StreamLease:
        return StreamLease(self.client, self.stream.name, self.worker)

    def storage(self) -> Storage:
        return open_storage(self.stream.root, self.connections)

    def _server_ms(self) -> int:
        record = Worker(queues=(self.stream.name,), task=self.worker.task, attempt=self.worker.attempt)
        stat = self.client.retry(self.client.set, paths.worker(self.worker.name), dump(record))
        return int(stat.mtime)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def services(stream: Stream, connections: Connections, task: Task) -> Iterator[Services]:
    with (
        open_session(connections) as client,
        join_workers(client, task=task.name, attempt=task.attempt, queues=(stream.name,)) as worker,
    ):
        ledger = StreamLedger(client, stream.name)
        ledger.prepare()
        yield Services(stream=stream, client=client, worker=worker, ledger=ledger, connections=connections)


def plan_interval(stream: Stream, interval: Interval, connections: Connections, task: Task) -> str:
    """Freeze the interval's shift, and return its id.

    While another shift is open or being worked on nothing is planned here: `consume_interval` finishes that one
    first and then plans this one itself, so that neither a slot nor a run waits. Raise NotYet before the time.
    """
    log = logger(__name__, stream=stream.name, shift=interval.shift)
    with services(stream, connections, task) as around:
        planner = around.planner()
        planner.asking_time(interval)
        if around.ledger.shift(interval.shift):
            log.info("found its frozen shift")
            return interval.shift
        try:
            with around.lease().take(wait_s=0) as lease:
                opened = around.ledger.head().value.open
                if opened:
                    log.info("left to consume: another shift is open", extra={"open": opened})
                else:
                    _log_plan(planner.plan(interval, lease), stream)
        except LeaseTaken as error:
            log.info("left to consume: %s", error)
    return interval.shift


def consume_interval(
    stream: Stream,
    interval: Interval,
    connections: Connections,
    task: Task,
    open_spark: "Callable[[], SparkSession]",
) -> None:
    """See the interval's shift committed: finish what is open, then plan it if nobody has, and consume it."""
    log = logger(__name__, stream=stream.name, shift=interval.shift)
    with services(stream, connections, task) as around, around.lease().take(wait_s=LEASE_WAIT_S) as lease:
        while True:
            opened = around.ledger.head().value.open
            if opened:
                _finish_shift(around, lease, opened, open_spark)
                continue
            node = around.ledger.shift(interval.shift)
            if node and node.value.state is ShiftState.COMMITTED:
                log.info("is committed", extra={"manifest": node.value.manifest})
                return
            _log_plan(around.planner().plan(interval, lease), stream)


def _finish_shift(
    around: Services, lease: StreamLease, shift_id: str, open_spark: "Callable[[], SparkSession]"
) -> None:
    node = around.ledger.shift(shift_id)
    assert node is not None, f"head names the open shift {shift_id}, which has no node"
    assert node.value.shift is not None, f"the open shift {shift_id} is committed already"
    shift = node.value.shift
    committer = Committer(
        stream=around.stream.name,
        shift=shift,
        ledger=around.ledger,
        storage=around.storage(),
        lease=lease,
    )
    if node.value.state is ShiftState.PENDING and committer.recover():
        logger(__name__, stream=around.stream.name, shift=shift.id).info("rolled forward")
        return
    committer.discard_work()
    _consume_shift(around, committer, shift, open_spark)


def _consume_shift(
    around: Services, committer: Committer, shift: Shift, open_spark: "Callable[[], SparkSession]"
) -> None:
    from tidemark.consume.spark import consume_splits

    order = TaskOrder(
        shift=shift.id,
        planned_ms=shift.planned_ms,
        window=shift.window,
        timestamp=around.stream.timestamp,
        compression=around.stream.compression,
        storage=committer.storage,
        folder=committer.folder,
        splits={},
    )
    timelines = around.ledger.timelines()
    has_records = any(found.splits for found in shift.shards.values())
    results = (
        consume_splits(
            open_spark(),
            shift,
            {number: timeline.topic for number, timeline in timelines.items()},
            spark_options(around.connections(around.stream.kafka_connection)),
            order,
        )
        if has_records
        else ()
    )
    manifest = build_manifest(around.stream.name, shift, results, around.ledger)
    committer.commit(manifest, results)
    logger(__name__, stream=around.stream.name, shift=shift.id).info(
        "committed",
        extra={
            "records": sum(shard.records for shard in manifest.shards.values()),
            "files": len(manifest.files),
            "bytes": sum(file.bytes for file in manifest.files),
        },
    )


def archive_stream(
    stream: Stream, connections: Connections, task: Task, open_spark: "Callable[[], SparkSession]"
) -> None:
    """Archive every hour below the lowest watermark that has something to archive and that nobody else works on."""
    from tidemark.archive.spark import join_targets, verify_targets

    with services(stream, connections, task) as around:
        archiver = HourArchiver(
            ledger=around.ledger, storage=around.storage(), client=around.client, worker=around.worker
        )
        claims = [claim for hour in archiver.waiting() if (claim := archiver.claim(hour, now_ms()))]
        if not claims:
            return
        spark = open_spark()
        orders = [order for claim in claims for order in claim.orders]
        joined = join_targets(spark, orders)
        for claim in claims:
            archiver.finish(claim, [target for target in joined if target.hour == claim.hour])
        verify_targets(spark, orders)
        for claim in claims:
            archiver.release(claim)
            logger(__name__, stream=stream.name, hour=claim.hour).info(
                "archived",
                extra={"sources": sum(len(order.target.pieces) for order in claim.orders)},
            )


def publish_stream(stream: Stream, connections: Connections, task: Task) -> list[Published]:
    with services(stream, connections, task) as around:
        publisher = Publisher(ledger=around.ledger, storage=around.storage(), now_ms=now_ms)
        published = publisher.sweep()
    for flag in published:
        logger(__name__, stream=stream.name, hour=flag.subject).info("ready", extra={"revision": flag.revision})
    return published


def _log_plan(shift: Shift, stream: Stream) -> None:
    records = sum(found.end - found.start for found in shift.shards.values())
    logger(__name__, stream=stream.name, shift=shift.id).info(
        "planned", extra={"number": shift.number, "shards": len(shift.shards), "records": records}
    )
