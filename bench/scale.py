"""Many partitions, many streams: planning 1,000 partitions, committing 5,000, switching one stream of 200."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from bench.ours import INTERVAL, Order
from bench.topics import mark_partitions
from tidemark.config import Stream
from tidemark.consume.commit import Committer, build_manifest
from tidemark.consume.results import SplitResult
from tidemark.drive.acts import look_at_switch, switch_timeline
from tidemark.drive.plan import plan_interval
from tidemark.drive.services import Services, now_ms, services
from tidemark.environment import Connections
from tidemark.errors import TidemarkError
from tidemark.kafka import KafkaCluster, Offsets, Topic, record_digest
from tidemark.ledger.lease import StreamLease
from tidemark.ledger.records import Shift
from tidemark.names import HOUR_MS, Interval, Task
from tidemark.plan.shift import Planner

_NEXT = Interval(INTERVAL.end_ms, INTERVAL.end_ms + HOUR_MS)
_TASK = Task(name="bench", attempt=1)
_SWITCHED_PARTITIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTimes:
    """The first plan of a stream, and the next, which compares the last record of each partition with its digest."""

    first: float
    next: float


def time_plans(connections: Connections, partitions: int) -> PlanTimes:
    order = Order(name=f"plan-{partitions}", topic=f"plan-{partitions}", lines=0, root="hdfs:///bench/plan")
    mark_partitions(connections("kafka_main"), order.topic, partitions, INTERVAL.start_ms)
    first = _time_plan(order, INTERVAL, connections)
    _commit_planned(order.stream, connections)
    return PlanTimes(first=first, next=_time_plan(order, _NEXT, connections))


def time_commit(connections: Connections, shards: int) -> float:
    """From the results of all tasks to the committed shift, when there are no files to be moved."""
    order = Order(name=f"commit-{shards}", topic="none", lines=0, root="hdfs:///bench/commit")
    with services(order.stream, connections, _TASK) as around, around.lease().take(wait_s=0) as lease:
        planner = Planner(
            stream=around.stream,
            ledger=around.ledger,
            kafka=lambda _: cast(KafkaCluster, _ManyPartitions(shards)),
            now_ms=now_ms,
            server_ms=around.server_ms,
        )
        return _commit_tombstones(around, lease, planner.plan(INTERVAL, 1, lease))


def time_switch(connections: Connections, streams: int) -> float:
    """Of an idle stream among so many, beyond the time for which the old topic's ends have to stand still."""
    old, new, stable_s = "switch-old", "switch-new", 1.0
    for topic in (old, new):
        mark_partitions(connections("kafka_main"), topic, _SWITCHED_PARTITIONS, INTERVAL.start_ms)
    orders = [Order(name=f"switch-{n}", topic=old, lines=0, root=f"hdfs:///bench/switch-{n}") for n in range(streams)]
    for order in orders:
        plan_interval(order.stream, INTERVAL, connections, _TASK)
    moving = orders[0].stream
    _commit_planned(moving, connections)
    begin = time.monotonic()
    outlook = look_at_switch(moving, "main", new, connections)
    switch_timeline(moving, outlook, connections, _TASK, stable_s=stable_s)
    return time.monotonic() - begin - stable_s


def _time_plan(order: Order, interval: Interval, connections: Connections) -> float:
    begin = time.monotonic()
    plan_interval(order.stream, interval, connections, _TASK)
    return time.monotonic() - begin


def _commit_planned(stream: Stream, connections: Connections) -> None:
    with services(stream, connections, _TASK) as around, around.lease().take(wait_s=0) as lease:
        node = around.ledger.shift(INTERVAL.shift)
        if node is None or node.value.shift is None:
            raise TidemarkError(f"Cannot measure {stream.name}: {INTERVAL.shift} is not planned")
        _commit_tombstones(around, lease, node.value.shift)


def _commit_tombstones(around: Services, lease: StreamLease, shift: Shift) -> float:
    """As if each shard had held one tombstone: a record that is accounted for without a file."""
    results = [
        SplitResult(
            shard=str(shard),
            index=0,
            records=1,
            tombstones=1,
            first_offset=found.start,
            last_offset=found.start,
            last_digest=record_digest(found.start, INTERVAL.start_ms, None),
            files=(),
        )
        for shard, found in shift.shards.items()
    ]
    begin = time.monotonic()
    _commit(around, lease, shift, results)
    return time.monotonic() - begin


def _commit(around: Services, lease: StreamLease, shift: Shift, results: Sequence[SplitResult]) -> None:
    committer = Committer(
        stream=around.stream.name, shift=shift, ledger=around.ledger, storage=around.storage(), lease=lease
    )
    committer.commit(build_manifest(around.stream.name, shift, results, around.ledger), results)


class _ManyPartitions:
    """A cluster with one record in each of very many partitions, more than a broker of the bench would like."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def describe(self, topic: str) -> Topic:
        return Topic(name=topic, id="many", partitions=self._partitions)

    def offsets(self, topic: str, partitions: Sequence[int], *, patience_s: float) -> dict[int, Offsets]:
        del topic, patience_s
        return {partition: Offsets(begin=0, stable=1, end=1) for partition in partitions}

    def digests(self, topic: str, offsets: dict[int, int]) -> dict[int, str]:
        del topic
        return dict.fromkeys(offsets, "")
