"""An operator's act: move one shard forward, or confirm it on a log that was replaced; what is left out is a gap."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tidemark.config import Stream
from tidemark.errors import WrongUse
from tidemark.kafka import KafkaCluster, Offsets, Topic
from tidemark.ledger import paths
from tidemark.ledger.lease import StreamLease
from tidemark.ledger.records import Move, Positions, Proof, ShardPosition, Shift, ShiftRange, TimelinesVersion
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import Transaction
from tidemark.names import Shard
from tidemark.plan.act import ActBasis, act_shift, open_act
from tidemark.plan.planner import UNCONFIRMED, is_replaced


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a move would do: give up [position.next, offset), of which Kafka has what lies above its begin."""

    shard: Shard
    offset: int
    position: ShardPosition
    kafka: Offsets
    topic: Topic
    was_made_again: bool
    digest: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mover:
    stream: Stream
    ledger: StreamLedger
    kafka: Callable[[str], KafkaCluster]
    """By the cluster's name."""

    def look(self, shard: Shard, offset: int) -> Outlook:
        """Raise WrongUse for a move that goes back, beyond what Kafka has, or nowhere."""
        subject = f"Cannot move {self.stream.name}/{shard}"
        position = self.ledger.positions().value.shards.get(shard)
        timeline = self.ledger.timeline(shard.timeline)
        if position is None or timeline is None:
            raise WrongUse(
                f"{subject}: no plan has seen such a shard; `tidemark offsets {self.stream.name}` lists them"
            )
        if offset < position.next:
            raise WrongUse(
                f"{subject} back from {position.next} to {offset}: it never goes back. To read something again, run "
                "its hour again (airflow backfill create --reprocess-behavior completed): what is missing is restored"
            )
        kafka = self.kafka(timeline.value.cluster)
        topic = kafka.describe(timeline.value.topic)
        found = kafka.offsets(topic.name, [shard.partition])[shard.partition]
        if offset > found.end:
            raise WrongUse(f"{subject} to {offset}: Kafka ends at {found.end}")
        was_made_again = topic.id != timeline.value.topic_id
        if offset == position.next and not was_made_again and not _is_replaced(kafka, topic, shard, position, found):
            raise WrongUse(f"{subject} to {offset}: it is there already, and its log was not replaced")
        return Outlook(
            shard=shard,
            offset=offset,
            position=position,
            kafka=found,
            topic=topic,
            was_made_again=was_made_again,
            digest=_digest_before(kafka, topic, shard, offset, found),
        )

    def freeze(self, outlook: Outlook, lease: StreamLease, planned_ms: int) -> Shift:
        """The move as the stream's open shift."""

        def freeze(basis: ActBasis, transaction: Transaction) -> Shift:
            shift = self._shift(outlook, basis, planned_ms)
            name = self.stream.name
            if outlook.was_made_again:
                renewed = TimelinesVersion(version=shift.timelines_version)
                transaction.put(paths.timelines(name), renewed, version=basis.timelines.version)
                self._take_topic(outlook, transaction)
                unconfirmed = _without_digests(basis.positions.value, outlook.shard)
                transaction.put(paths.positions(name), unconfirmed, version=basis.positions.version)
            else:
                transaction.check(paths.timelines(name), version=basis.timelines.version)
                transaction.check(paths.positions(name), version=basis.positions.version)
            return shift

        return open_act(self.stream, self.ledger, lease, freeze)

    def _shift(self, outlook: Outlook, basis: ActBasis, planned_ms: int) -> Shift:
        moved = ShiftRange(
            lost_from=outlook.position.next, start=outlook.offset, end=outlook.offset, proof=Proof.OPERATOR
        )
        shift = act_shift(self.stream, "move", basis, planned_ms, {outlook.shard: moved})
        return replace(
            shift,
            timelines_version=shift.timelines_version + outlook.was_made_again,
            move=Move(shard=str(outlook.shard), digest=outlook.digest),
        )

    def _take_topic(self, outlook: Outlook, transaction: Transaction) -> None:
        timeline = self.ledger.timeline(outlook.shard.timeline)
        assert timeline is not None
        path = paths.timeline(self.stream.name, outlook.shard.timeline)
        transaction.put(path, replace(timeline.value, topic_id=outlook.topic.id), version=timeline.version)


def _is_replaced(kafka: KafkaCluster, topic: Topic, shard: Shard, position: ShardPosition, found: Offsets) -> bool:
    digest = _digest_before(kafka, topic, shard, position.next, found)
    may_vanish = digest is None and kafka.is_compacted(topic.name)
    return is_replaced(position.digest, digest, records_may_vanish=may_vanish)


def _digest_before(kafka: KafkaCluster, topic: Topic, shard: Shard, offset: int, found: Offsets) -> str | None:
    if not found.begin < offset <= found.end:
        return None
    return kafka.digests(topic.name, {shard.partition: offset - 1}).get(shard.partition)


def _without_digests(positions: Positions, confirmed: Shard) -> Positions:
    """What is known of the other shards' old logs says nothing of the new ones: neither digests nor ends."""
    others = {
        shard: replace(position, digest=UNCONFIRMED)
        for shard, position in positions.shards.items()
        if shard.timeline == confirmed.timeline and shard != confirmed
    }
    held = tuple(found for found in positions.held if Shard.parse(found.shard).timeline != confirmed.timeline)
    return replace(positions.with_shards({**positions.shards, **others}), held=held)
