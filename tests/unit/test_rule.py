"""The rule, and for each answer the neighbouring wrong rule that would give another one."""

from dataclasses import replace

import pytest

from tidemark.ledger.records import ArchivePlan, Gap, HourRecord, Positions, ShardPosition
from tidemark.names import HOUR_MS, Hour, Shard
from tidemark.publish.rule import Cause, Reason, reasons_against

SEVEN = Hour.parse("2026-11-15T07")
RECORD = HourRecord()
LATER_MS = SEVEN.end_ms + HOUR_MS


def positions(*watermarks: int, completed: bool = False) -> Positions:
    shards = {
        Shard(1, number): ShardPosition(start=0, next=42, watermark_ms=mark, digest=None, completed=completed)
        for number, mark in enumerate(watermarks)
    }
    return Positions(start_ms=SEVEN.start_ms, first_ms=SEVEN.start_ms).with_shards(shards)


def judge(
    found: Positions, *, hour: Hour = SEVEN, record: HourRecord = RECORD, now_ms: int = LATER_MS
) -> tuple[Reason, ...]:
    return reasons_against(hour, record, found, now_ms)


def test_an_hour_is_ready_when_every_watermark_has_reached_its_end() -> None:
    assert judge(positions(SEVEN.end_ms, SEVEN.end_ms + 1)) == ()


@pytest.mark.parametrize("watermark_ms", [SEVEN.start_ms, SEVEN.start_ms + 1, SEVEN.end_ms - 1])
def test_a_shard_that_has_reached_the_start_of_the_hour_but_not_its_end_holds_it(watermark_ms: int) -> None:
    """With the hour's start in place of its end in the rule this hour would be ready, and its last lines missing."""
    (reason,) = judge(positions(SEVEN.end_ms, watermark_ms))
    assert (reason.cause, reason.shard) == (Cause.LAGGING, "0001-1")


def test_a_reason_names_the_shard_its_time_and_offset_and_what_is_wanted() -> None:
    (reason,) = judge(positions(SEVEN.end_ms, SEVEN.end_ms - 1))
    assert reason.text == (
        "shard 0001-1: everything is consumed up to 2026-11-15T07:59:59.999Z only, "
        "wanted 2026-11-15T08:00:00Z (next offset 42)"
    )
    assert reason.remedy == "the run of this interval, or of a later one, has to commit"


def test_the_quickest_shard_does_not_speak_for_the_others() -> None:
    """With the highest watermark in place of the lowest one the hour would be ready."""
    assert [reason.shard for reason in judge(positions(LATER_MS, SEVEN.start_ms, LATER_MS))] == ["0001-1"]


def test_shards_that_are_behind_are_those_and_in_order_that_their_rows_say() -> None:
    found = positions(*(SEVEN.end_ms + (n % 3 - 1) for n in range(100)))
    found = found.with_shards({**found.shards, Shard(2, 0): replace(found.shards[Shard(1, 3)], watermark_ms=0)})
    rows = {shard: row for shard, row in found.shards.items() if row.watermark_ms < SEVEN.end_ms}
    assert list(found.behind(SEVEN.end_ms).items()) == sorted(rows.items())
    assert len(rows) == 35
    assert found.lowest_watermark_ms == 0


def test_a_partition_that_nobody_ever_wrote_to_is_proven_like_any_other() -> None:
    """With a rule that waits for a record of every shard the hour would never be ready."""
    never_written = ShardPosition(start=0, next=0, watermark_ms=SEVEN.end_ms, digest=None)
    found = positions(SEVEN.end_ms)
    assert judge(found.with_shards({**found.shards, Shard(1, 1): never_written})) == ()


def test_a_new_partition_holds_the_hours_from_the_watermark_it_began_with() -> None:
    """With a rule that looks only at shards that have lines in the hour it would be ready too early."""
    added = ShardPosition(start=0, next=0, watermark_ms=SEVEN.start_ms, digest=None)
    found = positions(SEVEN.end_ms)
    assert [reason.shard for reason in judge(found.with_shards({**found.shards, Shard(1, 1): added}))] == ["0001-1"]


def test_an_empty_hour_is_ready_like_any_other() -> None:
    """No shift ever touched it, so that it has no node: a rule that wants one would never be satisfied."""
    assert judge(positions(SEVEN.end_ms), record=HourRecord()) == ()


def test_a_completed_shard_holds_nothing() -> None:
    assert judge(positions(0, completed=True)) == ()
    assert judge(positions(0)) != ()


def test_committed_lines_that_are_not_archived_hold_the_hour() -> None:
    (reason,) = judge(positions(SEVEN.end_ms), record=HourRecord(dirty=(11, 12)))
    assert (reason.cause, reason.text) == (
        Cause.NOT_ARCHIVED,
        "lines of shift number 11, 12 are committed but not archived",
    )


def test_an_hour_before_the_streams_first_is_never_ready() -> None:
    (reason,) = judge(positions(SEVEN.end_ms), hour=Hour.parse("2026-11-15T06"))
    assert reason.cause is Cause.BEFORE_START
    assert "before the stream's first whole hour, 2026-11-15T07" in reason.text


def test_an_hour_in_which_the_stream_began_is_not_whole() -> None:
    """With the hour of the start in place of the first whole one half an hour would be flagged."""
    found = replace(positions(LATER_MS), start_ms=SEVEN.start_ms + 1)
    assert [reason.cause for reason in judge(found)] == [Cause.BEFORE_START]


def test_a_stream_that_was_never_planned_has_no_ready_hour() -> None:
    assert [reason.cause for reason in judge(Positions())] == [Cause.NEVER_PLANNED]


def test_an_hour_that_is_not_over_is_not_ready_whatever_a_watermark_says() -> None:
    """A watermark never comes from record times, so a message of the year 2038 moves none; nor would it help."""
    year_2038 = 2_145_916_800_000
    assert [reason.cause for reason in judge(positions(year_2038), now_ms=SEVEN.end_ms - 1)] == [Cause.NOT_OVER]
    assert judge(positions(year_2038), now_ms=SEVEN.end_ms) == ()


GAP = Gap(shard="0001-0", start=40, end=97, since_ms=SEVEN.start_ms, until_ms=SEVEN.end_ms)


def test_a_gap_holds_the_hour_and_names_what_is_lost() -> None:
    (reason,) = judge(positions(SEVEN.end_ms), record=HourRecord(gaps=(GAP,)))
    assert reason.cause is Cause.GAP
    assert reason.text == "gap: offsets [40, 97) of shard 0001-0 are lost, and may have held lines of this hour"


def test_a_gap_that_was_accepted_holds_nothing_but_the_next_one_does() -> None:
    accepted = replace(GAP, accepted="the producer was broken")
    assert judge(positions(SEVEN.end_ms), record=HourRecord(gaps=(accepted,))) == ()
    assert len(judge(positions(SEVEN.end_ms), record=HourRecord(gaps=(accepted, GAP)))) == 1


def test_an_hour_of_which_a_target_is_gone_is_held_until_its_lines_are_archived_again() -> None:
    """The index names the target until then, and so would the flag."""
    again = ArchivePlan(number=2, shifts=(1,), timestamp_ms=0, voids=("2026-11-15/07/a.bm",))
    voiding = HourRecord(archives=1, archiving=again)
    (reason,) = judge(positions(SEVEN.end_ms), record=voiding)
    assert (reason.cause, reason.text) == (
        Cause.NOT_ARCHIVED,
        "2026-11-15/07/a.bm: gone or damaged, and not archived again yet",
    )
    assert judge(positions(SEVEN.end_ms), record=replace(voiding, archives=2)) == ()
    assert judge(positions(SEVEN.end_ms), record=replace(voiding, archiving=replace(again, voids=()))) == ()
