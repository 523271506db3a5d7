"""See an interval consumed and committed."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemark.config import Stream
from tidemark.consume.commit import Committer, build_manifest
from tidemark.consume.results import SplitResult, TaskOrder
from tidemark.drive.plan import plan_shift
from tidemark.drive.services import Services, services
from tidemark.environment import Connections
from tidemark.kafka import spark_options
from tidemark.ledger.lease import StreamLease
from tidemark.ledger.records import Shift, ShiftState
from tidemark.logs import logger
from tidemark.names import Interval, Task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEASE_WAIT_S = 1800.0


def consume_interval(
    stream: Stream,
    interval: Interval,
    connections: Connections,
    task: Task,
    open_spark: "Callable[[], SparkSession]",
) -> None:
    """See the interval's shift committed: finish what is open, then plan it if nobody has, and consume it.

    Spark is asked for only when there are records to read.
    """
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
            plan_shift(around, interval, lease)


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
    has_records = any(found.splits for found in shift.shards.values())
    results = _consume_splits(around, shift, order, open_spark()) if has_records else ()
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


def _consume_splits(around: Services, shift: Shift, order: TaskOrder, spark: "SparkSession") -> tuple[SplitResult, ...]:
    from tidemark.consume.spark import consume_splits

    topics = {number: timeline.topic for number, timeline in around.ledger.timelines().items()}
    options = spark_options(around.connections(around.stream.kafka_connection))
    return consume_splits(spark, shift, topics, options, order)
