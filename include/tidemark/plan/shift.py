"""Plan one shift against the living services: under the stream's lease, in one transaction."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from tidemark.config import Stream
from tidemark.errors import DataLoss, NotYet, TidemarkError
from tidemark.failpoints import reach
from tidemark.kafka import KafkaCluster, Offsets, Topic
from tidemark.ledger import paths
from tidemark.ledger.lease import StreamLease
from tidemark.ledger.records import (
    Head,
    Positions,
    Shift,
    ShiftRecord,
    ShiftState,
    Timeline,
    TimelinesVersion,
)
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import Transaction, Versioned
from tidemark.lineage import grown, growths, last_switch_ms, live
from tidemark.logs import logger
from tidemark.names import Interval, Shard, duration_ms, isoformat, milliseconds
from tidemark.plan.backfill import TIMELINE as BACKFILLED
from tidemark.plan.backfill import is_backfill, plan_backfill
from tidemark.plan.planner import PlannedWork, check_confirmed, is_replaced, plan_ranges

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Basis:
    """What was read for a plan: the versions are what its transaction compares."""

    head: Versioned[Head]
    version: Versioned[TimelinesVersion]
    positions: Versioned[Positions]
    timelines: Mapping[int, Versioned[Timeline]]
    """All of the stream; until the first plan has stored timeline 1, the one in memory."""
    sources: Mapping[int, "_Source"]
    """Of those that are not retired."""

    @property
    def timelines_version(self) -> int:
        """The first plan stores timeline 1, and with it version 1."""
        return self.version.value.version or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Where the records of a timeline are."""

    order: int
    kafka: KafkaCluster
    topic: Topic

    def offsets(self, *, patience_s: float = 0) -> dict[Shard, Offsets]:
        partitions = range(self.topic.partitions)
        return self._by_shard(self.kafka.offsets(self.topic.name, partitions, patience_s=patience_s))

    def offsets_at(self, time_ms: int) -> dict[Shard, int]:
        return self._by_shard(self.kafka.offsets_at(self.topic.name, range(self.topic.partitions), time_ms))

    def _by_shard(self, found: Mapping[int, Found]) -> dict[Shard, Found]:
        return {Shard(self.order, partition): value for partition, value in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """What planning needs. `server_ms` is ZooKeeper's clock, read by writing a node."""

    stream: Stream
    ledger: StreamLedger
    kafka: Callable[[str], KafkaCluster]
    """By the cluster's name."""
    now_ms: Callable[[], int]
    server_ms: Callable[[], int]

    def plan(self, interval: Interval, bite: int, lease: StreamLease) -> Shift:
        """Freeze the interval's shift, or a further bite of it.

        A crash before the transaction leaves nothing; after it, the frozen shift, which the next run finds.
        Raise NotYet before interval end + grace, and before the stream's last switch + grace.
        """
        planned_ms = self.asking_time(interval)
        head = self.ledger.head()
        if head.value.open:
            raise TidemarkError(f"Cannot plan {self.stream.name}/{interval.shift}: {head.value.open} is still open")
        basis = self._read(head, planned_ms)
        number = head.value.number + 1
        shift, work = self._freeze(basis, interval, shift_id(interval, bite), number, planned_ms)
        transaction = self._begin(basis, shift, work, lease)
        opened = replace(head.value, number=number, open=shift.id, epoch=lease.epoch)
        transaction.put(paths.head(self.stream.name), opened, version=head.version)
        record = ShiftRecord(number=number, state=ShiftState.PLANNED, cut=shift.is_cut, shift=shift)
        transaction.put(paths.shift(self.stream.name, shift.id), record, version=-1)
        self._commit(transaction, shift)
        self._raise_alarms(basis, work)
        return shift

    def is_readable(self, shift: Shift) -> bool:
        """Whether Kafka still has the start of every range. Raise DataLoss when its log is another one by now."""
        ranges = {shard: found for shard, found in shift.shards.items() if found.splits}
        timelines = self._timelines(shift.planned_ms)
        sources = [self._source(order, timelines[order].value) for order in sorted({s.timeline for s in ranges})]
        offsets = {shard: found for source in sources for shard, found in source.offsets().items()}
        for shard, found in ranges.items():
            if offsets[shard].end < found.end:
                raise DataLoss(
                    f"Cannot consume {self.stream.name}/{shard}: the range of {shift.id} ends at {found.end}, Kafka at "
                    f"{offsets[shard].end}; the log was replaced or went back"
                )
        return all(offsets[shard].begin <= found.start for shard, found in ranges.items())

    def plan_again(self, planned: Versioned[ShiftRecord], shift: Shift, lease: StreamLease) -> Shift:
        """Freeze a PLANNED shift anew whose start expired before it was read: under its id, number and interval."""
        interval = Interval(shift.start_ms, shift.end_ms)
        planned_ms = self.asking_time(interval)
        basis = self._read(self.ledger.head(), planned_ms)
        again, work = self._freeze(basis, interval, shift.id, shift.number, planned_ms)
        transaction = self._begin(basis, again, work, lease)
        record = replace(planned.value, cut=again.is_cut, shift=again)
        transaction.put(paths.shift(self.stream.name, shift.id), record, version=planned.version)
        self._commit(transaction, again)
        self._raise_alarms(basis, work)
        return again

    def asking_time(self, interval: Interval) -> int:
        """The earlier of our clock and ZooKeeper's: one clock that runs ahead proves nothing."""
        ours, servers = self.now_ms(), self.server_ms()
        allowed = duration_ms(self.stream.max_clock_skew)
        if abs(ours - servers) > allowed:
            raise TidemarkError(
                f"Cannot plan {self.stream.name}/{interval.shift}: our clock says {isoformat(ours)}, ZooKeeper's "
                f"{isoformat(servers)}; they may differ by {allowed // 1000} s (max_clock_skew)"
            )
        asking = min(ours, servers)
        deadline = interval.end_ms + duration_ms(self.stream.grace)
        if asking < deadline:
            raise NotYet(
                f"Cannot plan {self.stream.name}/{interval.shift} at {isoformat(asking)}: "
                f"wanted interval end + grace, {isoformat(deadline)}"
            )
        return asking

    def settling_ms(self) -> int | None:
        """Until then the ends of a timeline that was closed prove nothing, and nothing is planned."""
        switched_ms = last_switch_ms(self.ledger.timelines())
        return None if switched_ms is None else switched_ms + duration_ms(self.stream.grace)

    def _read(self, head: Versioned[Head], planned_ms: int) -> _Basis:
        settling_ms = self.settling_ms()
        if settling_ms is not None and planned_ms < settling_ms:
            raise NotYet(
                f"Cannot plan {self.stream.name} at {isoformat(planned_ms)}: "
                f"wanted its last switch + grace, {isoformat(settling_ms)}"
            )
        timelines = self._timelines(planned_ms)
        return _Basis(
            head=head,
            version=self.ledger.timelines_version(),
            positions=self.ledger.positions(),
            timelines=timelines,
            sources={order: self._source(order, found) for order, found in live(_values(timelines)).items()},
        )

    def _freeze(
        self, basis: _Basis, interval: Interval, shift: str, number: int, planned_ms: int
    ) -> tuple[Shift, PlannedWork]:
        positions = basis.positions.value
        check_confirmed(self.stream.name, positions)
        patience_s = self.stream.grace.total_seconds()
        found = [source.offsets(patience_s=patience_s) for source in basis.sources.values()]
        offsets = {shard: row for rows in found for shard, row in rows.items()}
        self._check_digests(basis, offsets)
        timelines = self._grown(basis, offsets)
        if is_backfill(interval, positions):
            work = self._backfill(basis.sources[BACKFILLED], interval, positions, offsets)
        else:
            work = plan_ranges(
                stream=self.stream,
                interval=interval,
                planned_ms=planned_ms,
                positions=positions,
                offsets=offsets,
                starts=self._starts(basis.sources[1]) if positions.start_ms is None else None,
                timelines=timelines,
            )
        frozen = Shift(
            id=shift,
            number=number,
            start_ms=interval.start_ms,
            end_ms=interval.end_ms,
            planned_ms=planned_ms,
            timelines_version=basis.timelines_version,
            window=work.window,
            timestamp=self.stream.timestamp,
            compression=self.stream.compression,
            ranges=Shift.columns(work.ranges),
            by_record_time=work.by_record_time,
            asked_ms=max(self.now_ms(), self.server_ms()) if work.has_lost else None,
        )
        return frozen, replace(work, timelines=timelines)

    def _backfill(
        self, source: _Source, interval: Interval, positions: Positions, offsets: Mapping[Shard, Offsets]
    ) -> PlannedWork:
        return plan_backfill(
            stream=self.stream,
            interval=interval,
            positions=positions,
            offsets=offsets,
            begins=source.offsets_at(interval.start_ms),
            ends=source.offsets_at(interval.end_ms),
            append_time=source.kafka.has_append_time(source.topic.name),
        )

    def _begin(self, basis: _Basis, shift: Shift, work: PlannedWork, lease: StreamLease) -> Transaction:
        name = self.stream.name
        transaction = self.ledger.begin(f"plan {shift.id}")
        lease.check_in(transaction)
        if basis.version.value.version:
            transaction.check(paths.timelines(name), version=basis.version.version)
        else:
            stored = TimelinesVersion(version=basis.timelines_version)
            transaction.put(paths.timelines(name), stored, version=basis.version.version)
        for order, node in basis.timelines.items():
            if node.version == -1 or work.timelines[order] != node.value:
                transaction.put(paths.timeline(name, order), work.timelines[order], version=node.version)
        transaction.put(paths.positions(name), work.positions, version=basis.positions.version)
        return transaction

    def _timelines(self, planned_ms: int) -> dict[int, Versioned[Timeline]]:
        """Raise TidemarkError when the configuration names none of them: somebody hoped to switch by that."""
        stored = self.ledger.timeline_nodes()
        configured = (self.stream.cluster, self.stream.topic)
        if not stored:
            topic = self.kafka(self.stream.cluster).describe(self.stream.topic)
            first = Timeline(
                cluster=self.stream.cluster,
                topic=self.stream.topic,
                topic_id=topic.id,
                switched_ms=planned_ms,
                partitions=topic.partitions,
            )
            return {1: Versioned(first, -1)}
        if configured not in {(node.value.cluster, node.value.topic) for node in stored.values()}:
            order, last = max(stored), stored[max(stored)].value
            raise TidemarkError(
                f"Cannot plan {self.stream.name}: configured are topic {self.stream.topic} on {self.stream.cluster}, "
                f"its timeline {order} is {last.topic} on {last.cluster}; `tidemark timeline switch` moves a stream"
            )
        return stored

    def _source(self, order: int, timeline: Timeline) -> _Source:
        kafka = self.kafka(timeline.cluster)
        topic = kafka.describe(timeline.topic)
        if timeline.topic_id != topic.id:
            raise DataLoss(
                f"Cannot plan {self.stream.name}: topic {topic.name} has the id {topic.id}, wanted "
                f"{timeline.topic_id}; it was deleted and made again; "
                f"`tidemark offsets set {self.stream.name} SHARD OFFSET` accepts that"
            )
        return _Source(order=order, kafka=kafka, topic=topic)

    def _grown(self, basis: _Basis, offsets: Mapping[Shard, Offsets]) -> dict[int, Timeline]:
        """All timelines, the closed ones with the ends that they have now. Raise DataLoss where one ends before."""
        timelines = _values(basis.timelines)
        for order, timeline in live(timelines).items():
            found = {shard.partition: offsets[shard].end for shard in sorted(offsets) if shard.timeline == order}
            for partition, end in enumerate(timeline.ends or ()):
                if found.get(partition, 0) < end:
                    raise DataLoss(
                        f"Cannot plan {self.stream.name}/{Shard(order, partition)}: it was closed at {end}, Kafka ends "
                        f"at {found.get(partition, 0)}; `tidemark timeline abandon {self.stream.name} {order}` gives "
                        "up what is missing"
                    )
            if timeline.ends is not None:
                timelines[order] = grown(timeline, found.values())
        return timelines

    def _starts(self, source: _Source) -> dict[Shard, int]:
        """Where the stream's start time lies, by record time; nothing for `earliest` and `latest`."""
        if not isinstance(self.stream.start, datetime):
            return {}
        return source.offsets_at(milliseconds(self.stream.start))

    def _check_digests(self, basis: _Basis, offsets: Mapping[Shard, Offsets]) -> None:
        for order, source in basis.sources.items():
            wanted = {
                shard.partition: position
                for shard, position in basis.positions.value.shards.items()
                if shard.timeline == order
                and position.digest
                and offsets[shard].begin < position.next <= offsets[shard].end
            }
            found = source.kafka.digests(source.topic.name, {p: row.next - 1 for p, row in wanted.items()})
            may_vanish = len(found) < len(wanted) and source.kafka.is_compacted(source.topic.name)
            for partition, position in wanted.items():
                if is_replaced(position.digest, found.get(partition), records_may_vanish=may_vanish):
                    shard = Shard(order, partition)
                    raise DataLoss(
                        f"Cannot plan {self.stream.name}/{shard}: the record at {position.next - 1} is not the one "
                        f"that was consumed; the log was replaced; `tidemark offsets set {self.stream.name} {shard} "
                        "OFFSET` accepts that"
                    )

    def _raise_alarms(self, basis: _Basis, work: PlannedWork) -> None:
        """Of what grew since the last plan; `why` and the flags go on telling it."""
        known = set(growths(_values(basis.timelines)))
        for growth in growths(work.timelines):
            if growth not in known:
                logger(__name__, stream=self.stream.name).error("%s", growth)

    def _commit(self, transaction: Transaction, shift: Shift) -> None:
        reach("plan.before_transaction")
        self.ledger.commit_frozen(transaction, shift)
        reach("plan.after_transaction")


def _values(nodes: Mapping[int, Versioned[Timeline]]) -> dict[int, Timeline]:
    return {order: node.value for order, node in nodes.items()}


def shift_id(interval: Interval, bite: int) -> str:
    """The first bite has the interval's own name, later ones a number behind it: `20261115T0700.2`."""
    return interval.shift if bite == 1 else f"{interval.shift}.{bite}"
