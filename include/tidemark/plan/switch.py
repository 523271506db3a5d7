"""Switch a stream to another topic or cluster, and let go of timelines that are over: operators' acts.

The act is frozen as the stream's open shift in one transaction, which closes the old timeline, opens the new one with
its shards and raises the version: an initiator who dies before it leaves nothing, one who dies after it leaves an act
that the next run puts on record.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from tidemark.config import Stream
from tidemark.errors import TidemarkError, WrongUse
from tidemark.kafka import KafkaCluster, Topic
from tidemark.ledger import paths
from tidemark.ledger.lease import StreamLease
from tidemark.ledger.records import (
    Parents,
    Positions,
    Proof,
    Retirement,
    ShardPosition,
    Shift,
    ShiftRange,
    Switch,
    Timeline,
    TimelinesVersion,
    dump,
)
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import Transaction, Versioned
from tidemark.lineage import kind_of_parents
from tidemark.names import Shard
from tidemark.plan.act import ActBasis, act_shift, open_act

MOST_BYTES = 600_000
"""Of the positions: a transaction holds them beside the ranges of a shift, and stays below 1 MiB."""
_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The two timelines that a switch changes, and the positions with the new shards."""

    timelines: Mapping[int, Timeline]
    positions: Positions


def close_and_open(
    *,
    order: int,
    closing: Timeline,
    ends: Sequence[int],
    opening: Timeline,
    begins: Sequence[int],
    positions: Positions,
) -> Opened:
    """New shards begin at `begins`, and hold no hour that was proven before: nobody had asked for them.

    Partitions that were added to the old topic since the last plan are its shards, too.
    """
    lowest_ms = positions.lowest_watermark_ms
    assert lowest_ms is not None, "the last timeline of a stream is open"
    young = {
        Shard(order + 1, partition): ShardPosition(start=begin, next=begin, watermark_ms=lowest_ms, digest=None)
        for partition, begin in enumerate(begins)
    }
    unseen = {
        Shard(order, partition): ShardPosition(start=0, next=0, watermark_ms=lowest_ms, digest=None)
        for partition in range(len(ends))
    }
    opened = replace(opening, partitions=len(begins), parents=kind_of_parents(len(ends), len(begins)))
    return Opened(
        timelines={order: closing.ending(ends), order + 1: opened},
        positions=positions.with_shards({**unseen, **positions.shards, **young}),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchOutlook:
    """What a switch would do, as the timelines were at `version`."""

    version: int
    order: int
    old: Timeline
    cluster: str
    topic: Topic
    begins: tuple[int, ...]
    known: tuple[int, ...]
    """Of the old timeline, by partition: the next offset to be read."""

    @property
    def parents(self) -> Parents:
        return kind_of_parents(len(self.known), len(self.begins))


@dataclass(frozen=True, slots=True, kw_only=True)
class Switcher:
    stream: Stream
    ledger: StreamLedger
    kafka: Callable[[str], KafkaCluster]
    """By the cluster's name."""

    def look(self, cluster: str, topic: str) -> SwitchOutlook:
        """Raise WrongUse for a target that does not exist, may not be read, or carried the stream before."""
        subject = f"Cannot switch {self.stream.name} to {topic} on {cluster}"
        version, timelines = self.ledger.timelines_version().value.version, self.ledger.timelines()
        if not timelines:
            raise WrongUse(f"{subject}: it was never planned; name the topic in its configuration instead")
        kafka = self.kafka(cluster)
        target = kafka.describe(topic)
        for order, timeline in timelines.items():
            if timeline.topic_id == target.id:
                raise WrongUse(f"{subject}: timeline {order} has claimed its records; wanted a topic of its own")
        found = kafka.offsets(topic, range(target.partitions))
        kafka.check_readable(topic, found)
        last = max(timelines)
        known = [row.next for shard, row in sorted(self._positions().items()) if shard.timeline == last]
        return SwitchOutlook(
            version=version,
            order=last,
            old=timelines[last],
            cluster=cluster,
            topic=target,
            begins=tuple(found[partition].begin for partition in range(target.partitions)),
            known=tuple(known),
        )

    def check_unchanged(self, outlook: SwitchOutlook) -> None:
        """Raise TidemarkError when somebody else was faster."""
        found = self.ledger.timelines_version().value.version
        if found != outlook.version:
            raise TidemarkError(
                f"Cannot switch {self.stream.name}: its timelines have version {found}, wanted {outlook.version}; "
                "somebody else changed them meanwhile"
            )

    def stable_ends(
        self,
        outlook: SwitchOutlook,
        stable_s: float,
        *,
        sleep: Callable[[float], None],
        monotonic: Callable[[], float],
    ) -> tuple[int, ...]:
        """The broker's ends once they stood still for so long. Raise TidemarkError when they do not."""
        ends = self._ends(outlook.old)
        began = since = monotonic()
        while monotonic() - since < stable_s:
            if monotonic() - began > 5 * stable_s:
                raise TidemarkError(
                    f"Cannot switch {self.stream.name}: the ends of {outlook.old.topic} on {outlook.old.cluster} did "
                    f"not stand still for {stable_s:g} s; move its producers first, or give the last offsets (--latest)"
                )
            sleep(min(_POLL_S, stable_s))
            found = self._ends(outlook.old)
            if found != ends:
                ends, since = found, monotonic()
        return ends

    def given_ends(self, outlook: SwitchOutlook, latest: Sequence[int]) -> tuple[int, ...]:
        """From last offsets, -1 where there is none. Raise WrongUse where more was read, or fewer partitions."""
        ends = tuple(last + 1 for last in latest)
        subject = f"Cannot close timeline {outlook.order} of {self.stream.name}"
        if len(ends) < len(outlook.known):
            raise WrongUse(f"{subject}: found {len(ends)} last offsets, wanted one for each of {len(outlook.known)}")
        for partition, (end, consumed) in enumerate(zip(ends, outlook.known, strict=False)):
            if end < consumed:
                raise WrongUse(f"{subject}: partition {partition} was read up to {consumed - 1}, found {end - 1}")
        broker = self._ends_if_asked(outlook.old)
        for partition, (end, found) in enumerate(zip_longest(ends, broker, fillvalue=0) if broker else ()):
            if end > found:
                raise WrongUse(f"{subject}: partition {partition} ends at {found - 1}, found {end - 1}")
        return ends

    def _ends_if_asked(self, timeline: Timeline) -> tuple[int, ...]:
        """None of a topic that is gone, or whose cluster does not answer: then the operator's word is all there is."""
        try:
            return self._ends(timeline)
        except TidemarkError:
            return ()

    def freeze(self, outlook: SwitchOutlook, ends: Sequence[int], lease: StreamLease, switched_ms: int) -> Shift:
        """The switch as the stream's open shift."""

        def freeze(basis: ActBasis, transaction: Transaction) -> Shift:
            self.check_unchanged(outlook)
            opened = close_and_open(
                order=outlook.order,
                closing=outlook.old,
                ends=ends,
                opening=Timeline(
                    cluster=outlook.cluster,
                    topic=outlook.topic.name,
                    topic_id=outlook.topic.id,
                    switched_ms=switched_ms,
                ),
                begins=outlook.begins,
                positions=basis.positions.value,
            )
            size = len(dump(opened.positions))
            if size > MOST_BYTES:
                raise WrongUse(
                    f"Cannot switch {self.stream.name}: its positions would have {size} bytes, wanted at most "
                    f"{MOST_BYTES}; `tidemark timeline retire` lets go of completed timelines"
                )
            for order, timeline in opened.timelines.items():
                node = self.ledger.timeline(order)
                path = paths.timeline(self.stream.name, order)
                transaction.put(path, timeline, version=node.version if node else -1)
            transaction.put(paths.positions(self.stream.name), opened.positions, version=basis.positions.version)
            shift = act_shift(self.stream, "switch", basis, switched_ms)
            return replace(
                _raise_version(self.stream, shift, basis, transaction), switch=Switch(timeline=outlook.order + 1)
            )

        return open_act(self.stream, self.ledger, lease, freeze)

    def _positions(self) -> dict[Shard, ShardPosition]:
        return self.ledger.positions().value.shards

    def _ends(self, timeline: Timeline) -> tuple[int, ...]:
        kafka = self.kafka(timeline.cluster)
        topic = kafka.describe(timeline.topic)
        if topic.id != timeline.topic_id:
            raise TidemarkError(
                f"Cannot switch {self.stream.name}: topic {topic.name} on {timeline.cluster} has the id {topic.id}, "
                f"wanted {timeline.topic_id}; give the last offsets of the one that is gone (--latest)"
            )
        found = kafka.offsets(topic.name, range(topic.partitions))
        return tuple(found[partition].end for partition in range(topic.partitions))


def retire_timeline(
    stream: Stream, ledger: StreamLedger, lease: StreamLease, retirement: Retirement, planned_ms: int
) -> Shift:
    """The retirement as the stream's open shift. Raise WrongUse unless the timeline is closed and, to be retired,
    completed; one that is completed is not abandoned."""

    def freeze(basis: ActBasis, transaction: Transaction) -> Shift:
        node = _check_retirement(stream, ledger, retirement, basis.positions.value)
        ends = node.value.ends or ()
        given_up = {
            shard: ShiftRange(
                lost_from=position.next,
                start=max(position.next, ends[shard.partition]),
                end=max(position.next, ends[shard.partition]),
                proof=Proof.OPERATOR,
            )
            for shard, position in basis.positions.value.shards.items()
            if shard.timeline == retirement.timeline and not position.completed
        }
        transaction.check(paths.positions(stream.name), version=basis.positions.version)
        retired = replace(node.value, retired_ms=planned_ms)
        transaction.put(paths.timeline(stream.name, retirement.timeline), retired, version=node.version)
        name = "abandon" if retirement.abandoned else "retire"
        shift = act_shift(stream, name, basis, planned_ms, given_up)
        return replace(_raise_version(stream, shift, basis, transaction), retirement=retirement)

    return open_act(stream, ledger, lease, freeze)


def _check_retirement(
    stream: Stream, ledger: StreamLedger, retirement: Retirement, positions: Positions
) -> Versioned[Timeline]:
    act = "abandon" if retirement.abandoned else "retire"
    subject = f"Cannot {act} timeline {retirement.timeline} of {stream.name}"
    node = ledger.timeline(retirement.timeline)
    if node is None:
        raise WrongUse(f"{subject}: there is none; `tidemark timeline list {stream.name}` shows them")
    if node.value.retired_ms is not None:
        raise WrongUse(f"{subject}: it is retired already")
    if node.value.ends is None:
        raise WrongUse(f"{subject}: it is open; wanted one that was closed, `tidemark timeline switch` does that")
    waiting = [
        shard
        for shard, position in sorted(positions.shards.items())
        if shard.timeline == retirement.timeline and not position.completed
    ]
    if waiting and not retirement.abandoned:
        raise WrongUse(
            f"{subject}: {len(waiting)} of its shards are not completed, {waiting[0]} first; wait for the next run, or "
            f"give them up: `tidemark timeline abandon {stream.name} {retirement.timeline}`"
        )
    if not waiting and retirement.abandoned:
        raise WrongUse(f"{subject}: all of its shards are completed, nothing is given up; `retire` it")
    return node


def _raise_version(stream: Stream, shift: Shift, basis: ActBasis, transaction: Transaction) -> Shift:
    version = basis.timelines.value.version + 1
    raised = TimelinesVersion(version=version)
    transaction.put(paths.timelines(stream.name), raised, version=basis.timelines.version)
    return replace(shift, timelines_version=version)
