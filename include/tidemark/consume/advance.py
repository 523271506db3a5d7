"""What a committed shift does to the positions: values in, values out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tidemark.ledger.records import (
    Backfill,
    ByRecordTime,
    Gap,
    HeldEnd,
    Positions,
    Proof,
    Retirement,
    ShardPosition,
    Shift,
    ShiftRange,
)
from tidemark.names import HOUR_MS, Hour, Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Advanced:
    """The positions after a shift, and the gaps that it puts on record: these hold their hours."""

    positions: Positions
    gaps: tuple[Gap, ...]


def advance(before: Positions, shift: Shift, digests: Mapping[Shard, str | None]) -> Advanced:
    """`digests`: of the record before each range's end; None where a marker or a hole stands there."""
    if shift.by_record_time:
        return _advance_backfill(before, shift, shift.by_record_time)
    if shift.retirement:
        return _retire(before, shift, shift.retirement)
    shards = before.shards
    gaps: list[Gap] = []
    held = {Shard.parse(found.shard): found for found in before.held}
    if shift.move:
        digests = {Shard.parse(shift.move.shard): shift.move.digest}
    for shard, found in shift.shards.items():
        position = shards[shard]
        is_moved = shift.move is not None and shift.move.shard == str(shard)
        if found.lost_from < found.start or is_moved:
            gaps.append(_gap(shard, position, found, shift))
            # What is lost may have arrived behind that end.
            held.pop(shard, None)
        proven_ms = _proven_ms(found, shift, held.get(shard))
        shards[shard] = replace(
            position,
            next=found.end,
            watermark_ms=max(position.watermark_ms, proven_ms or 0),
            digest=digests.get(shard) if found.end > found.lost_from or is_moved else position.digest,
            completed=position.completed or found.completes,
        )
        if proven_ms is not None:
            held.pop(shard, None)
        if found.held_end is not None:
            held.setdefault(shard, HeldEnd(shard=str(shard), end=found.held_end, until_ms=shift.end_ms))
    moved = replace(before.with_shards(shards), gaps=(), held=tuple(held[shard] for shard in sorted(held)))
    return Advanced(positions=moved, gaps=(*_close(before.gaps, shift), *gaps))


def _gap(shard: Shard, position: ShardPosition, found: ShiftRange, shift: Shift) -> Gap:
    """What is lost had arrived when its loss was found, which may be long after the hour that the shift proves."""
    since_ms = position.watermark_ms
    until_ms = max(since_ms, shift.lost_by_ms)
    return Gap(shard=str(shard), start=found.lost_from, end=found.start, since_ms=since_ms, until_ms=until_ms)


def _close(gaps: Iterable[Gap], shift: Shift) -> tuple[Gap, ...]:
    """Records of before November 2026 have gaps that wait for a watermark; they are older than this shift."""
    return tuple(replace(gap, until_ms=max(gap.since_ms, shift.lost_by_ms)) for gap in gaps)


def _proven_ms(found: ShiftRange, shift: Shift, held: HeldEnd | None) -> int | None:
    """Up to when everything that had arrived is committed; None: the range proves nothing."""
    if found.proof is Proof.END_OFFSET:
        return shift.end_ms
    return held.until_ms if held and found.end >= held.end else None


def _retire(before: Positions, shift: Shift, retirement: Retirement) -> Advanced:
    """The timeline's shards leave the positions; what was not completed is a gap up to the time of the act."""
    leaving = {shard: position for shard, position in before.shards.items() if shard.timeline == retirement.timeline}
    lost = (
        _gap(shard, position, shift.shards[shard], shift)
        for shard, position in leaving.items()
        if not position.completed
    )
    kept = {shard: position for shard, position in before.shards.items() if shard not in leaving}
    return Advanced(
        positions=replace(
            before.with_shards(kept),
            gaps=(),
            held=tuple(found for found in before.held if Shard.parse(found.shard) in kept),
        ),
        gaps=(*_close(before.gaps, shift), *lost),
    )


def _advance_backfill(before: Positions, shift: Shift, by_record_time: ByRecordTime) -> Advanced:
    """A backfill moves nothing that lives: what it adds lies below the shards' starts."""
    ranges = shift.shards.values()
    added = Backfill(
        from_ms=shift.start_ms,
        to_ms=by_record_time.to_ms,
        append_time=by_record_time.append_time,
        begin=tuple(found.start for found in ranges),
        end=tuple(found.end for found in ranges),
    )
    backfills: list[Backfill] = []
    for backfill in sorted((*before.backfills, added), key=lambda found: found.from_ms):
        if backfills and _meet(backfills[-1], backfill):
            backfills[-1] = _join(backfills[-1], backfill)
        else:
            backfills.append(backfill)
    return Advanced(positions=replace(before, backfills=tuple(backfills)), gaps=by_record_time.all_gaps)


def _meet(earlier: Backfill, later: Backfill) -> bool:
    return earlier.to_ms == later.from_ms and earlier.append_time == later.append_time


def _join(earlier: Backfill, later: Backfill) -> Backfill:
    """Partitions that were added in between begin at 0, so that a backfill has nothing of them."""
    most = max(len(earlier.end), len(later.end))
    return replace(
        earlier,
        to_ms=later.to_ms,
        begin=(*earlier.begin, *[0] * (most - len(earlier.begin))),
        end=(*later.end, *[0] * (most - len(later.end))),
    )


def hours_touched(gap: Gap) -> tuple[Hour, ...]:
    """Every hour that lies, at least in part, between the watermark before the gap and the time it was found."""
    if gap.until_ms is None:
        return ()
    first = Hour.of(gap.since_ms).start_ms
    return tuple(Hour(start) for start in range(first, gap.until_ms, HOUR_MS))


def touches(gap: Gap, hour: Hour) -> bool:
    """Whether the hour is one of those; asked for many gaps."""
    return gap.until_ms is not None and gap.since_ms < hour.end_ms and hour.start_ms < gap.until_ms
