"""What a shift writes into hours stays small, however much it lost."""

from dataclasses import replace

from tests.unit.test_flag import manifest

from tidemark.consume.touch import MOST_GAPS, hours_of, hours_only_held, touch
from tidemark.ledger.records import (
    Acceptance,
    Gap,
    HourRecord,
    Positions,
    Proof,
    ShardPosition,
    Shift,
    ShiftRange,
    dump,
)
from tidemark.manifest import Manifest
from tidemark.names import HOUR_MS, Hour, Shard

SEVEN = Hour.parse("2026-11-15T07")
EIGHT = Hour(SEVEN.end_ms)


def losing(number: int, shards: int, *, hours: int = 1) -> Manifest:
    """Without a line, and as many shards lost something between 07:00 and so many hours later."""
    gaps = tuple(
        Gap(
            shard=f"0001-{partition}",
            start=number,
            end=10**12,
            since_ms=SEVEN.start_ms,
            until_ms=SEVEN.start_ms + hours * HOUR_MS,
        )
        for partition in range(shards)
    )
    found = manifest()
    return replace(found, shift=replace(found.shift, number=number), files=(), gaps=gaps)


def accepting(number: int, hour: Hour, reason: str) -> Manifest:
    found = losing(number, 0)
    return replace(found, shift=replace(found.shift, acceptance=Acceptance(hour=str(hour), reason=reason)))


def test_a_few_gaps_are_rows_of_their_own_and_name_their_shift() -> None:
    record = touch(HourRecord(), SEVEN, losing(5, MOST_GAPS))
    assert [gap.shard for gap in record.gaps] == [f"0001-{partition}" for partition in range(MOST_GAPS)]
    assert {(gap.shift, gap.more) for gap in record.gaps} == {(5, 0)}


def test_many_gaps_are_told_by_one_row_for_each_fate() -> None:
    few = touch(HourRecord(), SEVEN, losing(5, 2))
    accepted = touch(few, SEVEN, accepting(6, SEVEN, "known"))
    record = touch(accepted, SEVEN, losing(7, 5000, hours=3))
    assert [(gap.shard, gap.accepted, gap.shift, gap.more) for gap in record.gaps] == [
        ("0001-0", "known", 5, 1),
        ("0001-0", None, 7, 4999),
    ]
    later = touch(record, SEVEN, losing(8, 20, hours=4))
    assert [(gap.shift, gap.more) for gap in later.gaps] == [(5, 1), (8, 5019)]
    assert later.gaps[1].until_ms == SEVEN.start_ms + 4 * HOUR_MS


def test_a_gap_that_names_a_file_keeps_its_row() -> None:
    file = Gap(shard="0001-3", start=1, end=2, since_ms=SEVEN.start_ms, until_ms=SEVEN.end_ms, file="a.bm")
    record = touch(HourRecord(gaps=(file,)), SEVEN, losing(5, 5000))
    assert [(gap.file, gap.more) for gap in record.gaps] == [("a.bm", 0), (None, 4999)]


def test_an_hour_that_is_only_held_may_be_touched_again() -> None:
    for shards in (1, 5000):
        found = losing(5, shards, hours=2)
        assert hours_of(found) == hours_only_held(found) == [SEVEN, EIGHT]
        once = touch(HourRecord(gaps=touch(HourRecord(), SEVEN, losing(4, 3)).gaps), SEVEN, found)
        assert touch(once, SEVEN, found) == once


def test_an_hour_that_got_lines_is_not_only_held() -> None:
    both = replace(losing(5, 1, hours=2), files=manifest().files)
    assert (hours_of(both), hours_only_held(both)) == ([SEVEN, EIGHT], [EIGHT])


def test_what_5000_partitions_lost_in_200_hours_fits_into_transactions() -> None:
    shards = [Shard(1, partition) for partition in range(5000)]
    position = ShardPosition(start=0, next=10**12, watermark_ms=SEVEN.start_ms, digest="0123456789abcdef")
    lost = ShiftRange(lost_from=5, start=10**12, end=10**12, proof=Proof.END_OFFSET)
    positions = Positions(start_ms=0).with_shards(dict.fromkeys(shards, position))
    ranges = Shift.columns(dict.fromkeys(shards, lost))
    found = losing(5, len(shards), hours=200)
    held = sum(len(dump(touch(HourRecord(dirty=(1, 2, 3)), hour, found))) for hour in hours_of(found))
    assert len(dump(positions)) + len(dump(replace(found.shift, ranges=ranges))) + held < 1_000_000
