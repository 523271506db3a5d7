"""What a committed shift does to the positions: values in, values out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidemark.ledger.records import Gap, Positions, Proof, Shift
from tidemark.names import HOUR_MS, Hour, Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Advanced:
    """The positions after a shift, and the gaps that its proofs have closed: these hold their hours."""

    positions: Positions
    closed: tuple[Gap, ...]


def advance(before: Positions, shift: Shift, digests: Mapping[Shard, str | None]) -> Advanced:
    """`digests`: of the record before each range's end; None where a marker or a hole stands there."""
    shards = before.shards
    gaps = list(before.gaps)
    for shard, found in shift.shards.items():
        position = shards[shard]
        if found.lost_from < found.start:
            gaps.append(Gap(shard=str(shard), start=found.lost_from, end=found.start, since_ms=position.watermark_ms))
        proven = found.proof is Proof.END_OFFSET
        shards[shard] = replace(
            position,
            next=found.end,
            watermark_ms=max(position.watermark_ms, shift.end_ms) if proven else position.watermark_ms,
            digest=digests.get(shard) if found.end > found.lost_from else position.digest,
        )
    closed = tuple(
        replace(gap, until_ms=shards[Shard.parse(gap.shard)].watermark_ms)
        for gap in gaps
        if shards[Shard.parse(gap.shard)].watermark_ms > gap.since_ms
    )
    still_open = tuple(gap for gap in gaps if shards[Shard.parse(gap.shard)].watermark_ms <= gap.since_ms)
    return Advanced(positions=Positions.of(before.start_ms, shards, still_open), closed=closed)


def hours_touched(gap: Gap) -> tuple[Hour, ...]:
    """Every hour that lies, at least in part, between the watermark before the gap and the one that closed it."""
    if gap.until_ms is None:
        return ()
    first = Hour.of(gap.since_ms).start_ms
    return tuple(Hour(start) for start in range(first, gap.until_ms, HOUR_MS))
