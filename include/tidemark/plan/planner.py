"""From positions and what Kafka says to the ranges of a shift: values in, values out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidemark.config import Stream
from tidemark.errors import DataLoss
from tidemark.kafka import Offsets
from tidemark.ledger.records import ByRecordTime, Positions, Proof, ShardPosition, ShiftRange, Window
from tidemark.names import Interval, Shard, duration_ms

SPLIT_RECORDS = 2_000_000
"""A range above this is cut into several Spark tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWork:
    """What the planning transaction stores: the positions that the plan starts from, and its ranges."""

    positions: Positions
    ranges: Mapping[Shard, ShiftRange]
    window: Window
    by_record_time: ByRecordTime | None = None


def plan_ranges(
    *,
    stream: Stream,
    interval: Interval,
    planned_ms: int,
    positions: Positions,
    offsets: Mapping[Shard, Offsets],
    starts: Mapping[Shard, int] | None = None,
) -> PlannedWork:
    """Raise DataLoss where Kafka has less than was consumed already, or (offset_reset: fail) no longer what comes next.

    `starts` are the offsets of the stream's start time, for the very first plan of a stream that has one.
    """
    known = positions.shards
    start_ms = _stream_start(stream, interval, planned_ms, positions, offsets)
    shards = {
        shard: known.get(shard)
        or _first_position(stream, positions, start_ms, offsets[shard], (starts or {}).get(shard))
        for shard in sorted(offsets)
    }
    first_ms = interval.start_ms if positions.first_ms is None else min(positions.first_ms, interval.start_ms)
    stored = replace(positions.with_shards({**known, **shards}), start_ms=start_ms, first_ms=first_ms)
    lowest = stored.lowest_watermark_ms
    return PlannedWork(
        positions=stored,
        ranges=_ranges(stream, shards, offsets),
        window=Window(
            past_ms=(start_ms if lowest is None else lowest) - duration_ms(stream.skew.past),
            future_ms=planned_ms + duration_ms(stream.skew.future),
        ),
    )


def _stream_start(
    stream: Stream, interval: Interval, planned_ms: int, positions: Positions, offsets: Mapping[Shard, Offsets]
) -> int:
    """The begin of the earliest planned interval when the stream began at offset 0 everywhere, so that nothing that
    was ever written is out of reach and runs may come in any order; else the time of the first plan, for good."""
    if positions.start_ms is not None:
        from_the_beginning = all(position.start == 0 for position in positions.shards.values())
        return min(positions.start_ms, interval.start_ms) if from_the_beginning else positions.start_ms
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


def _ranges(
    stream: Stream, shards: Mapping[Shard, ShardPosition], offsets: Mapping[Shard, Offsets]
) -> dict[Shard, ShiftRange]:
    starts = {shard: _start(stream, shard, position, offsets[shard]) for shard, position in shards.items()}
    ends = {shard: max(starts[shard], offsets[shard].stable) for shard in shards}
    most = share_out({shard: ends[shard] - starts[shard] for shard in shards}, stream.max_records)
    ranges = {}
    for shard, position in shards.items():
        end = starts[shard] + most[shard]
        ranges[shard] = ShiftRange(
            lost_from=position.next,
            start=starts[shard],
            end=end,
            points=split_points(starts[shard], end, SPLIT_RECORDS),
            proof=_proof(end, ends[shard], offsets[shard]),
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
