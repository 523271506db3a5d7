"""What a committed shift does to the hours: values in, values out."""

from collections.abc import Sequence
from dataclasses import replace

from tidemark.consume.advance import hours_touched, touches
from tidemark.ledger.records import Gap, HourRecord
from tidemark.manifest import Manifest
from tidemark.names import Hour

MOST_GAPS = 10
"""Of an hour, those of files aside: when there are more, one row stands for all that have the same fate, so that
thousands of partitions, or years of loss, fit into its node."""


def hours_of(manifest: Manifest) -> list[Hour]:
    """Every hour that the shift changes."""
    return sorted({*hours_changed(manifest), *hours_only_held(manifest)})


def hours_changed(manifest: Manifest) -> list[Hour]:
    """Those that got lines, or whose gaps are accepted."""
    dirty = {Hour.parse(file.hour) for file in manifest.files if file.hour}
    acceptance = manifest.shift.acceptance
    return sorted(dirty | ({Hour.parse(acceptance.hour)} if acceptance else set()))


def hours_only_held(manifest: Manifest) -> list[Hour]:
    """Those that a gap touches, and nothing else."""
    spans = {(gap.since_ms, gap.until_ms): gap for gap in manifest.gaps}
    held = {hour for gap in spans.values() for hour in hours_touched(gap)}
    return sorted(held.difference(hours_changed(manifest)))


def touch(record: HourRecord, hour: Hour, manifest: Manifest) -> HourRecord:
    """An hour that got lines is dirty, one that a gap touches is held, one whose gaps are accepted is not.

    One that is only held may be touched again.
    """
    gaps = record.gaps
    if all(gap.shift != manifest.shift.number for gap in gaps):
        added = [gap for gap in manifest.gaps if touches(gap, hour)]
        gaps = _fold((*gaps, *(replace(gap, shift=manifest.shift.number) for gap in added)))
    acceptance = manifest.shift.acceptance
    if acceptance and acceptance.hour == str(hour):
        gaps = tuple(replace(gap, accepted=gap.accepted or acceptance.reason) for gap in gaps)
    is_dirty = bool(manifest.files_of(str(hour)))
    return replace(record, dirty=(*record.dirty, manifest.shift.number) if is_dirty else record.dirty, gaps=gaps)


def _fold(gaps: Sequence[Gap]) -> tuple[Gap, ...]:
    files = [gap for gap in gaps if gap.file]
    if len(gaps) - len(files) <= MOST_GAPS:
        return tuple(gaps)
    rows: dict[str | None, Gap] = {}
    for gap in gaps:
        if not gap.file:
            row = rows.get(gap.accepted)
            rows[gap.accepted] = _join(row, gap) if row else gap
    return (*files, *rows.values())


def _join(row: Gap, gap: Gap) -> Gap:
    assert row.until_ms is not None
    assert gap.until_ms is not None
    return replace(
        row,
        since_ms=min(row.since_ms, gap.since_ms),
        until_ms=max(row.until_ms, gap.until_ms),
        shift=gap.shift,
        more=row.more + 1 + gap.more,
    )
