"""From positions and what Kafka says to the ranges of a shift: values in, values out."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidemark.config import Stream
from tidemark.errors import DataLoss, WrongUse
from tidemark.kafka import Offsets
from tidemark.ledger.records import ByRecordTime, Positions, Proof, ShardPosition, ShiftRange, Timeline, Window
from tidemark.lineage import is_free
from tidemark.names import Interval, Shard, duration_ms, isoformat

SPLIT_RECORDS = 2_000_000
"""A range above this is cut into several Spark tasks."""
UNCONFIRMED = "unconfirmed"
"""The digest of a shard on a log that was replaced: equal to no record's, so that nothing is planned before a move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWork:
    """What the planning transaction stores: positions and timelines that the plan starts from, and its ranges."""

    positions: Positions
    ranges: Mapping[Shard, ShiftRange]
    window: Window
    by_record_time: ByRecordTime | None = None
    timelines: Mapping[int, Timeline] = field(default_factory=dict)

    @property
    def has_lost(self) -> bool:
        return any(found.lost_from < found.start for found in self.ranges.values())


def plan_ranges(
    *,
    stream: Stream,
    interval: Interval,
    planned_ms: int,
    positions: Positions,
    offsets: Mapping[Shard, Offsets],
    starts: Mapping[Shard, int] | None = None,
    timelines: Mapping[int, Timeline] | None = None,
) -> PlannedWork:
    """Raise DataLoss where Kafka has less than was consumed already, or (offset_reset: fail) no longer what comes next.

    `starts` are the offsets of the stream's start time, for the very first plan of a stream that has one. `timelines`
    are all of the stream, the closed ones with the ends that they have now; the offsets were asked after the last
    switch + grace.
    """
    _refuse_out_of_reach(stream, interval, positions)
    known = positions.shards
    start_ms = _stream_start(stream, interval, planned_ms, positions, offsets)
    shards = {
        shard: _reopened(known[shard], offsets[shard])
        if shard in known
        else _first_position(stream, positions, start_ms, offsets[shard], (starts or {}).get(shard))
        for shard in sorted(offsets)
    }
    first_ms = interval.start_ms if positions.first_ms is None else min(positions.first_ms, start_ms)
    stored = replace(positions.with_shards({**known, **shards}), start_ms=start_ms, first_ms=first_ms)
    lowest = stored.lowest_watermark_ms
    window = Window(
        past_ms=(start_ms if lowest is None else lowest) - duration_ms(stream.skew.past),
        future_ms=planned_ms + duration_ms(stream.skew.future),
    )
    return PlannedWork(
        positions=replace(stored, past_ms=window.past_ms) if positions.start_ms is None else stored,
        ranges=_ranges(stream, shards, offsets, timelines or {}),
        window=window,
    )


def _refuse_out_of_reach(stream: Stream, interval: Interval, positions: Positions) -> None:
    """Before all that was planned, where no plan can bring all lines any more: no hour may get ready by it."""
    if positions.first_ms is None or interval.start_ms >= positions.first_ms:
        return
    subject = f"Cannot plan {stream.name}/{interval.shift}"
    if interval.end_ms <= positions.first_ms and Shard(1, 0) not in positions.shards:
        raise WrongUse(
            f"{subject}: what is older than {isoformat(positions.first_ms)} lay in timeline 1, which is retired; "
            "wanted an interval from there on"
        )
    past_ms = positions.first_ms if positions.past_ms is None else positions.past_ms
    if _began_at_0(positions) and interval.start_ms < past_ms:
        raise WrongUse(
            f"{subject}: lines older than {isoformat(past_ms)} went to _skewed when the stream's beginning was read "
            "(skew.past); wanted an interval from there on"
        )


def _began_at_0(positions: Positions) -> bool:
    """Once timeline 1 is retired nobody knows any more where it began."""
    shards = positions.shards
    return Shard(1, 0) in shards and all(position.start == 0 for position in shards.values())


def _stream_start(
    stream: Stream, interval: Interval, planned_ms: int, positions: Positions, offsets: Mapping[Shard, Offsets]
) -> int:
    """The begin of the earliest planned interval when the stream began at offset 0 everywhere, so that nothing that
    was ever written is out of reach and runs may come in any order; else the time of the first plan, for good."""
    if positions.start_ms is not None:
        return min(positions.start_ms, interval.start_ms) if _began_at_0(positions) else positions.start_ms
    from_the_beginning = stream.start == "earliest" and all(found.begin == 0 for found in offsets.values())
    return interval.start_ms if from_the_beginning else planned_ms


def _first_position(
    stream: Stream, positions: Positions, start_ms: int, found: Offsets, at_time: int | None
) -> ShardPosition:
    """The policy `start` holds for the very first plan; a partition that appears later begins at 0."""
    if positions.start_ms is None:
        start = found.begin if stream.start == "earliest" else found.stable
        start = start if at_time is None else max(found.begin, min(at_time, found.stable))
        return ShardPosition(start=start, next=start, watermark_ms=start_ms, digest=None)
    watermark = positions.lowest_watermark_ms
    return ShardPosition(start=0, next=0, watermark_ms=start_ms if watermark is None else watermark, digest=None)


def _reopened(position: ShardPosition, found: Offsets) -> ShardPosition:
    """A shard of a closed timeline that got records after it was completed is not completed any more."""
    return replace(position, completed=position.completed and found.end <= position.next)


def _ranges(
    stream: Stream,
    shards: Mapping[Shard, ShardPosition],
    offsets: Mapping[Shard, Offsets],
    timelines: Mapping[int, Timeline],
) -> dict[Shard, ShiftRange]:
    """Timeline by timeline, so that a shard is read in the same shift that completes its parents."""
    ranges: dict[Shard, ShiftRange] = {}
    completed: set[Shard] = set()
    for order in sorted({shard.timeline for shard in shards}):
        of_timeline = {shard: position for shard, position in shards.items() if shard.timeline == order}
        free = {shard: found for shard, found in of_timeline.items() if is_free(shard, timelines, completed)}
        is_closed = order in timelines and timelines[order].ends is not None
        taken = sum(found.end - found.start for found in ranges.values())
        moved = _ranges_of(stream, free, offsets, stream.max_records - taken, is_closed)
        ranges |= {shard: moved.get(shard) or _waiting(position) for shard, position in of_timeline.items()}
        completed |= {shard for shard, found in moved.items() if found.completes}
    return ranges


def _waiting(position: ShardPosition) -> ShiftRange:
    return ShiftRange(lost_from=position.next, start=position.next, end=position.next, proof=Proof.WAITING)


def _ranges_of(
    stream: Stream,
    shards: Mapping[Shard, ShardPosition],
    offsets: Mapping[Shard, Offsets],
    budget: int,
    is_closed: bool,
) -> dict[Shard, ShiftRange]:
    starts = {shard: _start(stream, shard, position, offsets[shard]) for shard, position in shards.items()}
    ends = {shard: max(starts[shard], offsets[shard].stable) for shard in shards}
    most = share_out({shard: ends[shard] - starts[shard] for shard in shards}, budget)
    ranges = {}
    for shard, position in shards.items():
        end = starts[shard] + most[shard]
        proof = _proof(end, ends[shard], offsets[shard])
        ranges[shard] = ShiftRange(
            lost_from=position.next,
            start=starts[shard],
            end=end,
            points=split_points(starts[shard], end, SPLIT_RECORDS),
            proof=proof,
            completes=is_closed and proof is Proof.END_OFFSET,
            held_end=offsets[shard].end if proof is Proof.UNSTABLE else None,
        )
    return ranges


def _start(stream: Stream, shard: Shard, position: ShardPosition, found: Offsets) -> int:
    subject = f"Cannot plan {stream.name}/{shard}"
    if found.end < position.next:
        raise DataLoss(
            f"{subject}: start {position.next} is ahead, Kafka ends at {found.end}; the log was replaced or went back"
        )
    if found.begin <= position.next:
        return position.next
    if stream.offset_reset == "fail":
        raise DataLoss(f"{subject}: start {position.next} is gone, Kafka begins at {found.begin} (offset_reset: fail)")
    return found.begin if stream.offset_reset == "earliest" else max(found.begin, found.stable)


def _proof(end: int, wanted: int, found: Offsets) -> Proof:
    if end < wanted:
        return Proof.CUT
    return Proof.END_OFFSET if found.stable >= found.end else Proof.UNSTABLE


def check_confirmed(stream: str, positions: Positions) -> None:
    """Raise DataLoss while a topic that was made again has a shard that no operator confirmed.

    Not by offsets: the new log may begin at `next`, and where nothing was consumed there was perhaps something to read.
    """
    for shard, position in positions.shards.items():
        if position.digest == UNCONFIRMED:
            raise DataLoss(
                f"Cannot plan {stream}/{shard}: its topic was made again, and it was not confirmed since; "
                f"`tidemark offsets set {stream} {shard} OFFSET` does that"
            )


def is_replaced(stored: str | None, found: str | None, *, records_may_vanish: bool) -> bool:
    """Whether a log is another one, by the digest of the record before `next`; None: there is no such record."""
    if found is None and records_may_vanish:
        return stored == UNCONFIRMED
    return stored is not None and found != stored


def share_out(lags: Mapping[Shard, int], budget: int) -> dict[Shard, int]:
    """Share a budget of records: small lags whole, the rest evenly, and something for everybody who has a lag."""
    shares: dict[Shard, int] = {}
    left = budget
    for taken, shard in enumerate(sorted(lags, key=lambda shard: (lags[shard], shard))):
        share = max(1, left // (len(lags) - taken))
        shares[shard] = min(lags[shard], share)
        left -= shares[shard]
    return shares


def split_points(start: int, end: int, most: int) -> tuple[int, ...]:
    """Cut [start, end) into equal parts of at most `most`."""
    parts = -(-(end - start) // most)
    return tuple(start + (end - start) * part // parts for part in range(1, parts))
