"""From record times to the ranges of a backfill, an interval older than the stream: values in, values out.

Record times are set by producers and may be in any order, but the first offset at or after a time never falls as the
time rises. So hours cut the log below a shard's start into ranges that never overlap, and the last hour before the
first planned one takes all that is left up to the start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.config import Stream
from tidemark.errors import DataLoss, WrongUse
from tidemark.kafka import Offsets
from tidemark.ledger.records import Backfill, ByRecordTime, Positions, Proof, ShiftRange, Window
from tidemark.names import Interval, Shard, duration_ms
from tidemark.plan.planner import SPLIT_RECORDS, PlannedWork, split_points

TIMELINE = 1
"""Shards of later timelines begin where the switch said, partitions added in place at 0: nothing lies below."""
MOST_EDGES = 10_000
"""Backfills that do not meet, times partitions: positions must fit into one node."""


def is_backfill(interval: Interval, positions: Positions) -> bool:
    """Older than all that was planned, and something may lie below the shards' starts."""
    is_older = positions.first_ms is not None and interval.end_ms <= positions.first_ms
    starts = [position.start for shard, position in positions.shards.items() if shard.timeline == TIMELINE]
    return is_older and any(starts)


def plan_backfill(
    *,
    stream: Stream,
    interval: Interval,
    positions: Positions,
    offsets: Mapping[Shard, Offsets],
    begins: Mapping[Shard, int],
    ends: Mapping[Shard, int],
    append_time: bool,
) -> PlannedWork:
    """`begins` and `ends`: the first offsets at or after the interval's begin and end, by record time.

    What was backfilled before is left out, to the offset. Raise DataLoss where Kafka has lost records that may belong
    to the interval (offset_reset: fail).
    """
    assert positions.start_ms is not None
    place = _Place.of(interval, positions)
    shards = {shard: position for shard, position in positions.shards.items() if shard.timeline == TIMELINE}
    if len(shards) * (len(positions.backfills) + 1) > MOST_EDGES:
        raise WrongUse(
            f"Cannot backfill {stream.name}/{interval}: {len(positions.backfills)} backfills of {len(shards)} "
            f"partitions do not meet, wanted at most {MOST_EDGES // len(shards) - 1}; backfill what lies between first"
        )
    ranges: dict[Shard, ShiftRange] = {}
    lost: dict[int, tuple[int, int]] = {}
    for shard, position in shards.items():
        kept = offsets[shard].begin
        floor, low, high = place.edges(shard, position.start, begins[shard], ends[shard])
        if low < min(high, kept) or (floor < min(high, kept) and begins[shard] <= kept):
            if stream.offset_reset == "fail":
                raise DataLoss(
                    f"Cannot backfill {stream.name}/{shard} for {interval}: Kafka begins at {kept}, and what it no "
                    "longer has may belong there (offset_reset: fail)"
                )
            lost[shard.partition] = floor, kept
        start = min(max(low, kept), high)
        ranges[shard] = ShiftRange(
            lost_from=start,
            start=start,
            end=high,
            points=split_points(start, high, SPLIT_RECORDS),
            proof=Proof.RECORD_TIME,
        )
    since_ms, until_ms = _touched(interval, positions, append_time)
    return PlannedWork(
        positions=positions,
        ranges=ranges,
        window=Window(
            past_ms=interval.start_ms - duration_ms(stream.skew.past),
            future_ms=positions.start_ms + duration_ms(stream.skew.future),
        ),
        by_record_time=ByRecordTime(
            to_ms=place.to_ms,
            append_time=append_time,
            lost=lost,
            lost_since_ms=since_ms,
            lost_until_ms=until_ms,
        ),
    )


def _touched(interval: Interval, positions: Positions, append_time: bool) -> tuple[int, int]:
    """What lost records may belong to: with producers' times any hour that is or will be backfilled, with the broker's
    own only this one."""
    assert positions.start_ms is not None
    if append_time:
        return interval.start_ms, interval.end_ms
    return min([interval.start_ms, *(found.from_ms for found in positions.backfills)]), positions.start_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """An interval between the backfills that are there already: its ranges begin and end exactly where theirs do."""

    from_ms: int
    to_ms: int
    is_last: bool
    before: Backfill | None
    after: Backfill | None

    @classmethod
    def of(cls, interval: Interval, positions: Positions) -> "_Place":
        assert positions.first_ms is not None
        is_last = 2 * interval.end_ms - interval.start_ms > positions.first_ms
        to_ms = positions.first_ms if is_last else interval.end_ms
        before = [found for found in positions.backfills if found.to_ms <= interval.start_ms]
        after = [found for found in positions.backfills if found.from_ms >= to_ms]
        return cls(
            from_ms=interval.start_ms,
            to_ms=to_ms,
            is_last=is_last,
            before=before[-1] if before else None,
            after=after[0] if after else None,
        )

    def edges(self, shard: Shard, start: int, begin: int, end: int) -> tuple[int, int, int]:
        """Where the backfill before ends, and the range between `begin` and `end` that overlaps no other backfill."""
        floor = _edge(self.before.end, shard) if self.before else 0
        ceiling = _edge(self.after.begin, shard) if self.after else start
        meets_before = self.before is not None and self.before.to_ms == self.from_ms
        meets_after = self.is_last or (self.after is not None and self.after.from_ms == self.to_ms)
        low = floor if meets_before else min(max(begin, floor), ceiling)
        high = ceiling if meets_after else min(max(end, low), ceiling)
        return floor, low, high


def _edge(edges: Sequence[int], shard: Shard) -> int:
    """0 for a partition that was added since: it begins there, and nothing lies below."""
    return edges[shard.partition] if shard.partition < len(edges) else 0
