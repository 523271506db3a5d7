"""Plan one shift against the living services: under the stream's lease, in one transaction."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tidemark.config import Stream
from tidemark.errors import CommitStateUnknown, DataLoss, NotYet, TidemarkError
from tidemark.kafka import KafkaCluster, Offsets, Topic
from tidemark.ledger import paths
from tidemark.ledger.lease import StreamLease
from tidemark.ledger.records import (
    Positions,
    Shift,
    ShiftRecord,
    ShiftState,
    Timeline,
    TimelinesVersion,
)
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import Versioned
from tidemark.names import Interval, Shard, duration_ms, isoformat
from tidemark.plan.planner import plan_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """What planning needs. `server_ms` is ZooKeeper's clock, read by writing a node."""

    stream: Stream
    ledger: StreamLedger
    kafka: KafkaCluster
    now_ms: Callable[[], int]
    server_ms: Callable[[], int]

    def plan(self, interval: Interval, lease: StreamLease) -> Shift:
        """Freeze the interval's shift, or return the one that is there already.

        A crash before the transaction leaves nothing; after it, the frozen shift, which the next run finds.
        Raise NotYet before interval end + grace.
        """
        planned_ms = self.asking_time(interval)
        head = self.ledger.head()
        if head.value.open:
            raise TidemarkError(f"Cannot plan {self.stream.name}/{interval.shift}: {head.value.open} is still open")
        version = self.ledger.timelines_version()
        topic = self.kafka.describe(self.stream.topic)
        timeline = self._timeline(topic, planned_ms)
        positions = self.ledger.positions()
        offsets = self._offsets(topic)
        self._check_digests(positions.value, offsets)
        work = plan_ranges(
            stream=self.stream,
            interval=interval,
            planned_ms=planned_ms,
            positions=positions.value,
            offsets=offsets,
        )
        stored_version = version.value if version.value.version else TimelinesVersion(version=1)
        shift = Shift(
            id=interval.shift,
            number=head.value.number + 1,
            start_ms=interval.start_ms,
            end_ms=interval.end_ms,
            planned_ms=planned_ms,
            timelines_version=stored_version.version,
            window=work.window,
            ranges=Shift.columns(work.ranges),
        )
        transaction = self.ledger.begin(f"plan {shift.id}")
        lease.check_in(transaction)
        name = self.stream.name
        if version.value.version:
            transaction.check(paths.timelines(name), version=version.version)
        else:
            transaction.put(paths.timelines(name), stored_version, version=version.version)
            transaction.put(paths.timeline(name, 1), timeline, version=-1)
        transaction.put(paths.positions(name), work.positions, version=positions.version)
        record = ShiftRecord(number=shift.number, state=ShiftState.PLANNED, shift=shift)
        transaction.put(paths.shift(name, shift.id), record, version=-1)
        opened = replace(head.value, number=shift.number, open=shift.id, epoch=lease.epoch)
        transaction.put(paths.head(name), opened, version=head.version)
        self._commit(transaction.commit, shift)
        return shift

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

    def _timeline(self, topic: Topic, planned_ms: int) -> Timeline:
        stored = self.ledger.timelines().get(1)
        if stored is None:
            return Timeline(
                cluster=self.stream.cluster,
                topic=self.stream.topic,
                topic_id=topic.id,
                switched_ms=planned_ms,
            )
        if (stored.cluster, stored.topic) != (self.stream.cluster, self.stream.topic):
            raise TidemarkError(
                f"Cannot plan {self.stream.name}: configured are topic {self.stream.topic} on {self.stream.cluster}, "
                f"its timeline 1 is {stored.topic} on {stored.cluster}"
            )
        if stored.topic_id != topic.id:
            raise DataLoss(
                f"Cannot plan {self.stream.name}: topic {topic.name} has the id {topic.id}, wanted {stored.topic_id}; "
                "it was deleted and made again"
            )
        return stored

    def _offsets(self, topic: Topic) -> dict[Shard, Offsets]:
        found = self.kafka.offsets(topic.name, range(topic.partitions))
        return {Shard(1, partition): offsets for partition, offsets in found.items()}

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
                    "the one that was consumed; the log was replaced"
                )

    def _commit(self, commit: Callable[[], None], shift: Shift) -> None:
        try:
            commit()
        except CommitStateUnknown:
            stored: Versioned[ShiftRecord] | None = self.ledger.shift(shift.id)
            if stored is None or stored.value.shift != shift:
                raise
