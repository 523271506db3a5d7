"""The graph of a stream's timelines: which shard follows which, what grew after its end, how cursors compare.

Values in, values out. Shards of timeline n + 1 have parents in n; they move only when all of these are completed.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from tidemark.ledger.records import Parents, Timeline
from tidemark.names import Shard, isoformat


def parents_of(shard: Shard, timelines: Mapping[int, Timeline]) -> tuple[Shard, ...]:
    """None for shards of the first timeline, and for partitions that were added to a topic in place."""
    timeline, before = timelines.get(shard.timeline), timelines.get(shard.timeline - 1)
    if timeline is None or before is None or before.snapshot is None or shard.partition >= timeline.partitions:
        return ()
    if timeline.parents is Parents.SAME:
        return (Shard(shard.timeline - 1, shard.partition),)
    return tuple(Shard(shard.timeline - 1, partition) for partition in range(len(before.snapshot)))


def is_free(shard: Shard, timelines: Mapping[int, Timeline], completed: Set[Shard]) -> bool:
    """Whether nothing is left that has to be read before it. A timeline that was retired holds nobody, one that is
    missing without that everybody."""
    before = timelines.get(shard.timeline - 1)
    if shard.timeline > 1 and (before is None or before.snapshot is None):
        return False
    return all(
        parent in completed or timelines[parent.timeline].retired_ms is not None
        for parent in parents_of(shard, timelines)
    )


def kind_of_parents(before: int, after: int) -> Parents:
    """By the numbers of partitions."""
    return Parents.SAME if before == after else Parents.ALL


def closed_ms(order: int, timelines: Mapping[int, Timeline]) -> int | None:
    """When the timeline was closed: the switch that began the next one. None while it is open."""
    following = timelines.get(order + 1)
    return following.switched_ms if following else None


def last_switch_ms(timelines: Mapping[int, Timeline]) -> int | None:
    """None for a stream that was never switched."""
    return timelines[max(timelines)].switched_ms if len(timelines) > 1 else None


def live(timelines: Mapping[int, Timeline]) -> dict[int, Timeline]:
    """Those that plans ask for: closed ones, too, until they are retired."""
    return {order: timeline for order, timeline in sorted(timelines.items()) if timeline.retired_ms is None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A shard that got records after the switch that closed it: some producer has not moved."""

    shard: Shard
    closed_ms: int
    closed_at: int
    end: int

    def __str__(self) -> str:
        return (
            f"alarm: shard {self.shard} was closed at offset {self.closed_at} by the switch of "
            f"{isoformat(self.closed_ms)} and has grown to {self.end} since; some producer has not moved"
        )


def growths(timelines: Mapping[int, Timeline]) -> Iterator[Growth]:
    for order, timeline in sorted(timelines.items()):
        closed = closed_ms(order, timelines)
        if closed is None or timeline.ends is None or timeline.snapshot is None:
            continue
        for partition, end in enumerate(timeline.ends):
            # A partition that was added to the topic after its end had none.
            closed_at = timeline.snapshot[partition] if partition < len(timeline.snapshot) else 0
            if end > closed_at:
                yield Growth(shard=Shard(order, partition), closed_ms=closed, closed_at=closed_at, end=end)


def alarms_of(timelines: Mapping[int, Timeline]) -> tuple[str, ...]:
    """What grew after it was closed: told until an operator has looked at it and retired the timeline."""
    return tuple(str(growth) for growth in growths(timelines) if timelines[growth.shard.timeline].retired_ms is None)


def grown(timeline: Timeline, found: Iterable[int]) -> Timeline:
    """A closed timeline whose topic has these ends now: its own never shrink."""
    return timeline.ending(max(pair) for pair in zip_longest(timeline.ends or (), found, fillvalue=0))


class Cursor(NamedTuple):
    """Everything of one partition up to and including `offset` of timeline `order` is behind it; -1: nothing of it."""

    order: int
    offset: int

    def __str__(self) -> str:
        return f"{self.order:04d}:{self.offset}"


def cursor_of(shard: Shard, offset: int, timelines: Mapping[int, Timeline]) -> Cursor:
    """The one name of a place: of the last record behind it, so that no later switch makes it another one.

    So (3, -1) and (2, -1) are (1, last) when timeline 2 was never used, and cursors of a partition compare as pairs.
    Only where the partition goes on as itself: with other numbers of partitions a beginning is not another's end.
    """
    order = shard.timeline
    while offset < 0 and (last := _last_before(Shard(order, shard.partition), timelines)) is not None:
        order, offset = order - 1, last
    return Cursor(order, offset)


def _last_before(shard: Shard, timelines: Mapping[int, Timeline]) -> int | None:
    """The last offset of the partition in the timeline before; None where it does not come from there."""
    if not parents_of(shard, timelines) or timelines[shard.timeline].parents is not Parents.SAME:
        return None
    latest = timelines[shard.timeline - 1].latest
    return latest[shard.partition] if latest else None
