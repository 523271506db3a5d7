"""What a committed shift does to the hours: values in, values out."""

from dataclasses import replace

from tidemark.consume.advance import hours_touched
from tidemark.ledger.records import HourRecord
from tidemark.manifest import Manifest
from tidemark.names import Hour


def hours_of(manifest: Manifest) -> list[Hour]:
    """Every hour that the shift changes."""
    dirty = {Hour.parse(file.hour) for file in manifest.files if file.hour}
    held = {hour for gap in manifest.gaps for hour in hours_touched(gap)}
    acceptance = manifest.shift.acceptance
    return sorted(dirty | held | ({Hour.parse(acceptance.hour)} if acceptance else set()))


def touch(record: HourRecord, hour: Hour, manifest: Manifest) -> HourRecord:
    """An hour that got lines is dirty, one that a gap touches is held, one whose gaps are accepted is not."""
    gaps = (*record.gaps, *(gap for gap in manifest.gaps if hour in hours_touched(gap)))
    acceptance = manifest.shift.acceptance
    if acceptance and acceptance.hour == str(hour):
        gaps = tuple(replace(gap, accepted=gap.accepted or acceptance.reason) for gap in gaps)
    is_dirty = bool(manifest.files_of(str(hour)))
    return replace(record, dirty=(*record.dirty, manifest.shift.number) if is_dirty else record.dirty, gaps=gaps)
