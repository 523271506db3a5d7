"""Plan an interval."""

from tidemark.config import Stream
from tidemark.drive.services import Services, now_ms, services
from tidemark.drive.shifts import find_shift
from tidemark.environment import Connections
from tidemark.errors import DataLoss, NotYet
from tidemark.ledger.lease import LeaseTaken, StreamLease
from tidemark.ledger.records import Shift
from tidemark.logs import logger
from tidemark.manifest import list_manifests
from tidemark.names import Interval, Task
from tidemark.plan.shift import Planner


def plan_interval(stream: Stream, interval: Interval, connections: Connections, task: Task) -> str:
    """Freeze the interval's shift, and return its id.

    While another shift is open or being worked on nothing is planned here: `consume_interval` finishes that one
    first and then plans this one itself, so that neither a slot nor a run waits. Raise NotYet before the time.
    """
    log = logger(__name__, stream=stream.name, shift=interval.shift)
    with services(stream, connections, task) as around:
        planner_of(around).asking_time(interval)
        if find_shift(around, interval.shift):
            log.info("found its frozen shift")
            return interval.shift
        try:
            with around.lease().take(wait_s=0) as lease:
                opened = around.ledger.head().value.open
                if opened:
                    log.info("left to consume: another shift is open", extra={"open": opened})
                else:
                    plan_shift(around, interval, 1, lease)
        except (LeaseTaken, NotYet) as error:
            log.info("left to consume: %s", error)
    return interval.shift


def planner_of(around: Services) -> Planner:
    return Planner(
        stream=around.stream,
        ledger=around.ledger,
        kafka=around.kafka,
        now_ms=now_ms,
        server_ms=around.server_ms,
    )


def plan_shift(around: Services, interval: Interval, bite: int, lease: StreamLease) -> Shift:
    """Raise DataLoss for a stream whose ledger is gone: planned as a new one it would be read a second time."""
    if not around.ledger.head().value.number and list_manifests(around.storage()):
        raise DataLoss(
            f"Cannot plan {around.stream.name}: {around.stream.root} has manifests of committed shifts, ZooKeeper "
            f"knows of none; `tidemark rebuild {around.stream.name}` restores its ledger"
        )
    shift = planner_of(around).plan(interval, bite, lease)
    log_shift(around, "planned", shift)
    return shift


def log_shift(around: Services, act: str, shift: Shift) -> None:
    log = logger(__name__, stream=around.stream.name, shift=shift.id)
    records = sum(found.end - found.start for found in shift.shards.values())
    log.info(act, extra={"number": shift.number, "shards": len(shift.shards), "records": records})
    for shard, found in shift.shards.items():
        if found.lost_from < found.start:
            log.error("gap: records are lost", extra={"shard": shard, "from": found.lost_from, "to": found.start})
