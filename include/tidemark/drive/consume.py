"""See an interval consumed and committed."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidemark.config import Stream
from tidemark.consume.commit import Committer, build_manifest
from tidemark.consume.restore import mark_waiting, missing_files, restore
from tidemark.consume.results import SplitResult, TaskOrder
from tidemark.drive.plan import log_shift, plan_shift, planner_of
from tidemark.drive.services import Services, now_ms, services
from tidemark.drive.shifts import find_shift, prune_shifts
from tidemark.environment import Connections, kafka_connection
from tidemark.errors import DataLoss
from tidemark.failpoints import reach
from tidemark.kafka_options import spark_options
from tidemark.ledger.lease import StreamLease
from tidemark.ledger.records import Shift, ShiftRecord, ShiftState
from tidemark.logs import logger
from tidemark.manifest import Manifest, ManifestFile, read_manifest
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

    A backlog is taken in bites, until one is not cut short. An interval that was committed before is checked, and what
    is missing of it restored. Spark is asked for only when there are records to read.
    """
    log = logger(__name__, stream=stream.name, shift=interval.shift)
    with services(stream, connections, task) as around:
        is_rerun = True
        while True:
            _let_operator_act(around)
            with around.lease().take(wait_s=LEASE_WAIT_S) as lease:
                has_worked, bites = _consume_until_wanted(around, lease, interval, open_spark)
                is_rerun = is_rerun and not has_worked
                if not bites:
                    continue
                if is_rerun:
                    for bite in bites:
                        _restore(around, lease, bite, open_spark)
                log.info("is committed", extra={"manifest": bites[-1].manifest})
                return


def _consume_until_wanted(
    around: Services, lease: StreamLease, interval: Interval, open_spark: "Callable[[], SparkSession]"
) -> tuple[bool, list[ShiftRecord]]:
    """Whether anything was done, and the interval's bites once all of it is committed.

    Nothing is begun any more when an operator asks for the lease.
    """
    has_worked = False
    while not (has_worked and around.ledger.is_lease_wanted()):
        opened = around.ledger.head().value.open
        if opened:
            finish_shift(around, lease, opened, open_spark)
            prune_shifts(around)
        else:
            bites = _bites(around, interval)
            if bites and not bites[-1].cut:
                return has_worked, bites
            _let_switch_settle(around)
            plan_shift(around, interval, len(bites) + 1, lease)
        has_worked = True
    return has_worked, []


def _let_operator_act(around: Services) -> None:
    """Whoever asks for the lease takes his question back when he has it, or gives up; it dies with him."""
    deadline = time.monotonic() + LEASE_WAIT_S
    while around.ledger.is_lease_wanted() and time.monotonic() < deadline:
        time.sleep(0.2)


def _let_switch_settle(around: Services) -> None:
    """Wait for the grace after the last switch, minutes at most: a flag must not wait for one run more."""
    settling_ms = planner_of(around).settling_ms()
    while settling_ms is not None and min(now_ms(), around.server_ms()) < settling_ms:
        time.sleep(min(1.0, max(0.01, (settling_ms - now_ms()) / 1000)))


def _bites(around: Services, interval: Interval) -> list[ShiftRecord]:
    found: list[ShiftRecord] = []
    while record := find_shift(around, shift_id(interval, len(found) + 1)):
        found.append(record)
    return found


def finish_shift(around: Services, lease: StreamLease, opened: str, open_spark: "Callable[[], SparkSession]") -> None:
    """Take the open shift one step on: a PENDING one to COMMITTED, or back to PLANNED; a PLANNED one to COMMITTED."""
    node = around.ledger.shift(opened)
    assert node is not None, f"head names the open shift {opened}, which has no node"
    assert node.value.shift is not None, f"the open shift {opened} is committed already"
    around.announce(node.value.shift)
    committer = _committer(around, node.value.shift, lease)
    if node.value.state is ShiftState.PENDING:
        outcome = "rolled forward" if committer.recover() else "rolled back: its files are not all there"
        logger(__name__, stream=around.stream.name, shift=opened).info(outcome)
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
    has_records = any(found.splits for found in shift.shards.values())
    reach("consume.before_read")
    results = _read_splits(around, committer, open_spark()) if has_records else ()
    reach("consume.after_read")
    if not planner_of(around).is_readable(shift):
        raise DataLoss(f"Cannot commit {around.stream.name}/{shift.id}: records expired while they were read")
    manifest = build_manifest(around.stream.name, shift, results, around.ledger)
    committer.commit(manifest, results)
    counts = manifest.counts()
    logger(__name__, stream=around.stream.name, shift=shift.id).info(
        "committed", extra={"records": counts.records, "files": len(manifest.files), "bytes": counts.bytes}
    )


def _restore(
    around: Services, lease: StreamLease, record: ShiftRecord, open_spark: "Callable[[], SparkSession]"
) -> None:
    assert record.manifest is not None, "a committed shift names its manifest"
    storage = around.storage()
    manifest = read_manifest(storage, record.manifest)
    missing = missing_files(storage, around.ledger, manifest)
    if missing:
        _restore_files(around, lease, manifest, missing, open_spark)
    mark_waiting(storage, around.ledger, manifest)


def _restore_files(
    around: Services,
    lease: StreamLease,
    manifest: Manifest,
    missing: Sequence[ManifestFile],
    open_spark: "Callable[[], SparkSession]",
) -> None:
    if not planner_of(around).is_readable(manifest.shift):
        raise DataLoss(
            f"Cannot restore {around.stream.name}/{manifest.shift.id}: {len(missing)} files are missing, "
            f"{missing[0].path} first, and Kafka no longer has all of its records"
        )
    committer = _committer(around, manifest.shift, lease)
    committer.discard_work()
    restore(committer.storage, manifest, missing, _read_splits(around, committer, open_spark()))
    committer.discard_work()
    log = logger(__name__, stream=around.stream.name, shift=manifest.shift.id)
    log.warning("restored", extra={"files": len(missing)})


def _read_splits(around: Services, committer: Committer, spark: "SparkSession") -> tuple[SplitResult, ...]:
    from tidemark.consume.spark import Source, consume_splits

    shift = committer.shift
    order = TaskOrder(
        shift=shift.id,
        planned_ms=shift.planned_ms,
        window=shift.window,
        timestamp=shift.timestamp,
        compression=shift.compression,
        storage=committer.storage,
        folder=committer.folder,
    )
    read = {shard.timeline for shard, found in shift.shards.items() if found.splits}
    sources = {
        number: Source(
            topic=timeline.topic, options=spark_options(around.connections(kafka_connection(timeline.cluster)))
        )
        for number, timeline in around.ledger.timelines().items()
        if number in read
    }
    return consume_splits(spark, shift, sources, order)
