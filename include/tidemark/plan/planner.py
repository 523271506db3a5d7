"""From positions and what Kafka says to the ranges of a shift: values in, values out."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.config import Stream
from tidemark.errors import DataLoss
from tidemark.kafka import Offsets
from tidemark.ledger.records import Positions, Proof, ShardPosition, ShiftRange, Window
from tidemark.names import Interval, Shard, duration_ms

SPLIT_RECORDS = 2_000_000
"""A range above this is cut into several Spark tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWork:
    """What the planning transaction stores: the positions that the plan starts from, and its ranges."""

    positions: Positions
    ranges: Mapping[Shard, ShiftRange]
    window: Window


def plan_ranges(
    *,
    stream: Stream,
    interval: Interval,
    planned_ms: int,
    positions: Positions,
    offsets: Mapping[Shard, Offsets],
) -> PlannedWork:
    """Raise DataLoss where Kafka no longer has what comes next, or has less than was consumed already."""
    known = positions.shards
    start_ms = _stream_start(stream, interval, planned_ms, positions, offsets)
    shards = {
        shard: known.get(shard) or _first_position(stream, positions, start_ms, offsets[shard])
        for shard in sorted(offsets)
    }
    ranges = {shard: _range(stream, shard, shards[shard], offsets[shard]) for shard in shards}
    stored = Positions.of(start_ms, {**known, **shards})
    lowest = stored.lowest_watermark_ms
    return PlannedWork(
        positions=stored,
        ranges=ranges,
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


def _first_position(stream: Stream, positions: Positions, start_ms: int, found: Offsets) -> ShardPosition:
    """The policy `start` holds for the very first plan; a partition that appears later begins at 0."""
    if positions.start_ms is None:
        start = found.begin if stream.start == "earliest" else found.stable
        return ShardPosition(start=start, next=start, watermark_ms=start_ms, digest=None)
    watermark = positions.lowest_watermark_ms
    return ShardPosition(start=0, next=0, watermark_ms=start_ms if watermark is None else watermark, digest=None)


def _range(stream: Stream, shard: Shard, position: ShardPosition, found: Offsets) -> ShiftRange:
    subject = f"Cannot plan {stream.name}/{shard}"
    if found.begin > position.next:
        raise DataLoss(f"{subject}: start {position.next} is gone, Kafka begins at {found.begin} (offset_reset: fail)")
    if found.end < position.next:
        raise DataLoss(
            f"{subject}: start {position.next} is ahead, Kafka ends at {found.end}; the log was replaced or went back"
        )
    end = max(position.next, found.stable)
    return ShiftRange(
        start=position.next,
        end=end,
        points=split_points(position.next, end, SPLIT_RECORDS),
        proof=Proof.END_OFFSET if found.stable >= found.end else Proof.NONE,
    )


def split_points(start: int, end: int, most: int) -> tuple[int, ...]:
    """Cut [start, end) into equal parts of at most `most`."""
    parts = -(-(end - start) // most)
    return tuple(start + (end - start) * part // parts for part in range(1, parts))
