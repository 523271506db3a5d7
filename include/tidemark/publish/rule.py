"""The rule: when an hour is ready, and if not, why. A pure function of what the ledger says."""

from tidemark.ledger.records import HourRecord, Positions
from tidemark.names import Hour, isoformat

RULE = (
    "every shard of every timeline is completed or has a watermark at or after the end of the hour; "
    "everything committed for the hour is archived; no gap touches it"
)


def reasons_against(hour: Hour, record: HourRecord, positions: Positions) -> tuple[str, ...]:
    """Empty when the hour is ready. Compared with the hour's end: a shard that lags inside the hour holds it."""
    first = positions.first_hour
    if first is None:
        return ("nothing was ever planned for the stream",)
    if hour < first:
        return (f"it lies before the stream's first whole hour, {first}",)
    lagging = tuple(
        f"shard {shard}: everything is consumed up to {isoformat(position.watermark_ms)} only, "
        f"wanted {isoformat(hour.end_ms)} (next offset {position.next})"
        for shard, position in sorted(positions.shards.items())
        if not position.completed and position.watermark_ms < hour.end_ms
    )
    gaps = tuple(
        f"gap: offsets [{gap.start}, {gap.end}) of shard {gap.shard} are lost, and may have held lines of this hour"
        for gap in record.gaps
    )
    dirty = ", ".join(str(number) for number in record.dirty)
    unarchived = (f"lines of shift number {dirty} are committed but not archived",) if dirty else ()
    return lagging + gaps + unarchived
