"""See an interval consumed and committed."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemark.config import Stream
from tidemark.consume.commit import Committer, build_manifest
from tidemark.consume.results import SplitResult, TaskOrder
from tidemark.drive.plan import log_shift, plan_shift, planner_of
from tidemark.drive.services import Services, services
from tidemark.environment import Connections
from tidemark.errors import DataLoss
from tidemark.failpoints import reach
from tidemark.kafka import spark_options
from tidemark.ledger.lease import StreamLease
from tidemark.ledger.records import Shift, ShiftRecord, ShiftState
from tidemark.logs import logger
from tidemark.names import Interval, Task
from tidemark.plan.shift import shift_id

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

    A backlog is taken in bites, until one is not cut short. Spark is asked for only when there are records to read.
    """
    log = logger(__name__, stream=stream.name, shift=interval.shift)
    with services(stream, connections, task) as around, around.lease().take(wait_s=LEASE_WAIT_S) as lease:
        while True:
            opened = around.ledger.head().value.open
            if opened:
                _finish_shift(around, lease, opened, open_spark)
                continue
            bites = _bites(around, interval)
            if bites and not bites[-1].cut:
                log.info("is committed", extra={"manifest": bites[-1].manifest})
                return
            plan_shift(around, interval, len(bites) + 1, lease)


def _bites(around: Services, interval: Interval) -> list[ShiftRecord]:
    found: list[ShiftRecord] = []
    while node := around.ledger.shift(shift_id(interval, len(found) + 1)):
        found.append(node.value)
    return found


def _finish_shift(around: Services, lease: StreamLease, opened: str, open_spark: "Callable[[], SparkSession]") -> None:
    node = around.ledger.shift(opened)
    assert node is not None, f"head names the open shift {opened}, which has no node"
    assert node.value.shift is not None, f"the open shift {opened} is committed already"
    around.announce(node.value.shift)
    committer = _committer(around, node.value.shift, lease)
    if node.value.state is ShiftState.PENDING and committer.recover():
        logger(__name__, stream=around.stream.name, shift=opened).info("rolled forward")
        return
    committer.discard_work()
    planner = planner_of(around)
    if not planner.is_readable(node.value.shift):
        again = planner.plan_again(node, node.value.shift, lease)
        log_shift(around, "planned again: its start expired", again)
        committer = _committer(around, again, lease)
    _consume_shift(around, committer, committer.shift, open_spark)


def _committer(around: Services, shift: Shift, lease: StreamLease) -> Committer:
    return Committer(
        stream=around.stream.name,
        shift=shift,
        ledger=around.ledger,
        storage=around.storage(),
        lease=lease,
    )


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
    reach("consume.before_read")
    results = _consume_splits(around, shift, order, open_spark()) if has_records else ()
    reach("consume.after_read")
    if not planner_of(around).is_readable(shift):
        raise DataLoss(f"Cannot commit {around.stream.name}/{shift.id}: records expired while they were read")
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
