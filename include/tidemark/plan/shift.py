"""Plan one shift against the living services: under the stream's lease, in one transaction."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

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
from tidemark.names import Interval, Shard, duration_ms, isoformat, milliseconds
from tidemark.plan.backfill import is_backfill, plan_backfill
from tidemark.plan.planner import PlannedWork, plan_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class _Basis:
    """What was read for a plan: the versions are what its transaction compares."""

    head: Versioned[Head]
    timelines: Versioned[TimelinesVersion]
    positions: Versioned[Positions]
    timeline: Timeline
    topic: Topic

    @property
    def timelines_version(self) -> int:
        """The first plan stores timeline 1, and with it version 1."""
        return self.timelines.value.version or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """What planning needs. `server_ms` is ZooKeeper's clock, read by writing a node."""

    stream: Stream
    ledger: StreamLedger
    kafka: KafkaCluster
    now_ms: Callable[[], int]
    server_ms: Callable[[], int]

    def plan(self, interval: Interval, bite: int, lease: StreamLease) -> Shift:
        """Freeze the interval's shift, or a further bite of it.

        A crash before the transaction leaves nothing; after it, the frozen shift, which the next run finds.
        Raise NotYet before interval end + grace.
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
        return shift

    def is_readable(self, shift: Shift) -> bool:
        """Whether Kafka still has the start of every range. Raise DataLoss when its log is another one by now."""
        topic = self.kafka.describe(self.stream.topic)
        self._timeline(topic, shift.planned_ms)
        offsets = self._offsets(topic)
        ranges = {shard: found for shard, found in shift.shards.items() if found.splits}
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

    def _read(self, head: Versioned[Head], planned_ms: int) -> _Basis:
        topic = self.kafka.describe(self.stream.topic)
        return _Basis(
            head=head,
            timelines=self.ledger.timelines_version(),
            positions=self.ledger.positions(),
            timeline=self._timeline(topic, planned_ms),
            topic=topic,
        )

    def _freeze(
        self, basis: _Basis, interval: Interval, shift: str, number: int, planned_ms: int
    ) -> tuple[Shift, PlannedWork]:
        positions = basis.positions.value
        offsets = self._offsets(basis.topic)
        self._check_digests(positions, offsets)
        if is_backfill(interval, positions):
            work = self._backfill(basis.topic, interval, positions, offsets)
        else:
            work = plan_ranges(
                stream=self.stream,
                interval=interval,
                planned_ms=planned_ms,
                positions=positions,
                offsets=offsets,
                starts=self._starts(basis.topic) if positions.start_ms is None else None,
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
        )
        return frozen, work

    def _backfill(
        self, topic: Topic, interval: Interval, positions: Positions, offsets: Mapping[Shard, Offsets]
    ) -> PlannedWork:
        return plan_backfill(
            stream=self.stream,
            interval=interval,
            positions=positions,
            offsets=offsets,
            begins=self._offsets_at(topic, interval.start_ms),
            ends=self._offsets_at(topic, interval.end_ms),
            append_time=self.kafka.has_append_time(topic.name),
        )

    def _begin(self, basis: _Basis, shift: Shift, work: PlannedWork, lease: StreamLease) -> Transaction:
        name = self.stream.name
        transaction = self.ledger.begin(f"plan {shift.id}")
        lease.check_in(transaction)
        if basis.timelines.value.version:
            transaction.check(paths.timelines(name), version=basis.timelines.version)
        else:
            stored = TimelinesVersion(version=basis.timelines_version)
            transaction.put(paths.timelines(name), stored, version=basis.timelines.version)
            transaction.put(paths.timeline(name, 1), basis.timeline, version=-1)
        transaction.put(paths.positions(name), work.positions, version=basis.positions.version)
        return transaction

    def _timeline(self, topic: Topic, planned_ms: int) -> Timeline:
        stored = self.ledger.timelines().get(1)
        if stored is None:
            return Timeline(
                cluster=self.stream.cluster, topic=self.stream.topic, topic_id=topic.id, switched_ms=planned_ms
            )
        if (stored.cluster, stored.topic) != (self.stream.cluster, self.stream.topic):
            raise TidemarkError(
                f"Cannot plan {self.stream.name}: configured are topic {self.stream.topic} on {self.stream.cluster}, "
                f"its timeline 1 is {stored.topic} on {stored.cluster}"
            )
        if stored.topic_id != topic.id:
            raise DataLoss(
                f"Cannot plan {self.stream.name}: topic {topic.name} has the id {topic.id}, wanted {stored.topic_id}; "
                f"it was deleted and made again; `tidemark offsets set {self.stream.name} SHARD OFFSET` accepts that"
            )
        return stored

    def _offsets(self, topic: Topic) -> dict[Shard, Offsets]:
        found = self.kafka.offsets(topic.name, range(topic.partitions))
        return {Shard(1, partition): offsets for partition, offsets in found.items()}

    def _starts(self, topic: Topic) -> dict[Shard, int]:
        """Where the stream's start time lies, by record time; nothing for `earliest` and `latest`."""
        if not isinstance(self.stream.start, datetime):
            return {}
        return self._offsets_at(topic, milliseconds(self.stream.start))

    def _offsets_at(self, topic: Topic, time_ms: int) -> dict[Shard, int]:
        found = self.kafka.offsets_at(topic.name, range(topic.partitions), time_ms)
        return {Shard(1, partition): offset for partition, offset in found.items()}

    def _check_digests(self, positions: Positions, offsets: Mapping[Shard, Offsets]) -> None:
        wanted = {
            shard.partition: position
            for shard, position in positions.shards.items()
            if position.digest and offsets[shard].begin < position.next <= offsets[shard].end
        }
        found = self.kafka.digests(self.stream.topic, {p: position.next - 1 for p, position in wanted.items()})
        for partition, position in wanted.items():
            if found.get(partition) != position.digest:
                raise DataLoss(
                    f"Cannot plan {self.stream.name}/{Shard(1, partition)}: the record at {position.next - 1} is not "
                    f"the one that was consumed; the log was replaced; `tidemark offsets set {self.stream.name} "
                    f"{Shard(1, partition)} OFFSET` accepts that"
                )

    def _commit(self, transaction: Transaction, shift: Shift) -> None:
        reach("plan.before_transaction")
        self.ledger.commit_frozen(transaction, shift)
        reach("plan.after_transaction")


def shift_id(interval: Interval, bite: int) -> str:
    """The first bite has the interval's own name, later ones a number behind it: `20261115T0700.2`."""
    return interval.shift if bite == 1 else f"{interval.shift}.{bite}"
