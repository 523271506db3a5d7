"""The rule: when an hour is ready, and if not, why. A pure function of what the ledger says, and of the clock."""

from dataclasses import dataclass
from enum import StrEnum

from tidemark.ledger.records import Gap, HourRecord, HourState, Positions
from tidemark.names import Hour, isoformat

RULE = (
    "every shard of every timeline is completed or has a watermark at or after the end of the hour; "
    "everything committed for the hour is archived; no gap touches it that was not accepted"
)


class Cause(StrEnum):
    NEVER_PLANNED = "never-planned"
    NOT_OVER = "not-over"
    BEFORE_START = "before-start"
    LAGGING = "lagging"
    GAP = "gap"
    NOT_ARCHIVED = "not-archived"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """What holds an hour, and what would end that."""

    cause: Cause
    text: str
    remedy: str
    shard: str | None = None


def reasons_against(hour: Hour, record: HourRecord, positions: Positions, now_ms: int) -> tuple[Reason, ...]:
    """Empty when the hour is ready. Compared with the hour's end: a shard that lags inside the hour holds it."""
    if record.state is HourState.EXPIRED:
        return (
            Reason(
                cause=Cause.EXPIRED,
                text="it is expired: retention has removed its day",
                remedy="nothing: its lines are gone",
            ),
        )
    first = positions.first_hour
    if first is None:
        return (
            Reason(
                cause=Cause.NEVER_PLANNED,
                text="nothing was ever planned for the stream",
                remedy="its DAG's first run plans it: unpause the DAG",
            ),
        )
    if not positions.reaches(hour):
        return (
            Reason(
                cause=Cause.BEFORE_START,
                text=f"it lies before the stream's first whole hour, {first}, and was not backfilled up to there",
                remedy=f"airflow backfill create, from {hour} to the hour before {first}",
            ),
        )
    return (
        *_clock(hour, now_ms),
        *_lagging(hour, positions),
        *(_held_by(gap) for gap in record.gaps if gap.accepted is None),
        *_not_archived(record),
    )


def _clock(hour: Hour, now_ms: int) -> tuple[Reason, ...]:
    if now_ms >= hour.end_ms:
        return ()
    return (
        Reason(
            cause=Cause.NOT_OVER,
            text=f"it is not over: now is {isoformat(now_ms)}",
            remedy=f"the run of its interval, after {isoformat(hour.end_ms)} and the grace",
        ),
    )


def _lagging(hour: Hour, positions: Positions) -> tuple[Reason, ...]:
    return tuple(
        Reason(
            cause=Cause.LAGGING,
            shard=str(shard),
            text=f"shard {shard}: everything is consumed up to {isoformat(position.watermark_ms)} only, "
            f"wanted {isoformat(hour.end_ms)} (next offset {position.next})",
            remedy="the run of this interval, or of a later one, has to commit",
        )
        for shard, position in positions.behind(hour.end_ms).items()
    )


def _held_by(gap: Gap) -> Reason:
    if gap.file:
        return Reason(
            cause=Cause.GAP,
            shard=gap.shard,
            text=f"gap: {gap.file} was found damaged or gone; it held offsets {gap.start} to {gap.end - 1} "
            f"of shard {gap.shard}",
            remedy="a rerun of its shift restores it while Kafka has the records (airflow backfill create, "
            "--reprocess-behavior completed); `tidemark flags accept` publishes the hour without it",
        )
    lost = (
        f"offsets [{gap.start}, {gap.end}) of shard {gap.shard} are lost"
        if gap.start < gap.end
        else f"the log of shard {gap.shard} was replaced, or given up, at {gap.start}"
    )
    others = f"; {gap.more} further gaps, which the manifests up to number {gap.shift} list" if gap.more else ""
    return Reason(
        cause=Cause.GAP,
        shard=gap.shard,
        text=f"gap: {lost}, and may have held lines of this hour{others}",
        remedy="`tidemark flags accept` publishes the hour with the gap written in its flag",
    )


def _not_archived(record: HourRecord) -> tuple[Reason, ...]:
    """Also while targets that are gone are to be archived again: the index still names them."""
    found = []
    if record.dirty:
        numbers = ", ".join(str(number) for number in record.dirty)
        found.append(f"lines of shift number {numbers} are committed but not archived")
    plan = record.archiving
    if plan and plan.voids and plan.number > record.archives:
        found.append(f"{', '.join(plan.voids)}: gone or damaged, and not archived again yet")
    return tuple(
        Reason(cause=Cause.NOT_ARCHIVED, text=text, remedy="the next archive task of the stream") for text in found
    )
