from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.config import Stream
from tidemark.errors import DataLoss, WrongUse
from tidemark.kafka import Offsets
from tidemark.ledger.records import Backfill, HeldEnd, Positions, Proof, ShardPosition
from tidemark.names import HOUR_MS, Hour, Interval, Shard
from tidemark.plan.move import _without_digests
from tidemark.plan.planner import UNCONFIRMED, PlannedWork, check_confirmed, is_replaced, plan_ranges, split_points

STREAM = Stream(name="clicks", cluster="main", topic="clicks", root="hdfs:///clicks", owner="web")
SEVEN = Hour.parse("2026-11-15T07")
INTERVAL = Interval(SEVEN.start_ms, SEVEN.end_ms)
PLANNED_MS = SEVEN.end_ms + 5 * 60_000
ZERO = Shard(1, 0)


def plan(
    offsets: Mapping[Shard, Offsets],
    positions: Positions | None = None,
    *,
    stream: Stream = STREAM,
    interval: Interval = INTERVAL,
) -> PlannedWork:
    return plan_ranges(
        stream=stream,
        interval=interval,
        planned_ms=PLANNED_MS,
        positions=positions or Positions(),
        offsets=offsets,
    )


def at(begin: int, end: int, stable: int | None = None) -> Offsets:
    return Offsets(begin=begin, end=end, stable=end if stable is None else stable)


def consumed(next_offset: int, *, start: int = 0, watermark_ms: int = SEVEN.start_ms) -> Positions:
    position = ShardPosition(start=start, next=next_offset, watermark_ms=watermark_ms, digest=None)
    first_ms = SEVEN.start_ms - HOUR_MS
    past_ms = first_ms - 7 * 24 * HOUR_MS
    return Positions(start_ms=first_ms, first_ms=first_ms, past_ms=past_ms).with_shards({ZERO: position})


def test_the_first_plan_takes_everything_and_starts_with_its_interval() -> None:
    work = plan({ZERO: at(0, 10), Shard(1, 1): at(0, 0)})
    assert (work.ranges[ZERO].start, work.ranges[ZERO].end) == (0, 10)
    assert work.ranges[Shard(1, 1)].splits == ()
    assert work.positions.start_ms == SEVEN.start_ms
    assert work.positions.first_hour == SEVEN


def test_a_log_that_lost_its_beginning_makes_the_stream_start_when_it_was_planned() -> None:
    work = plan({ZERO: at(5, 10)})
    assert (work.ranges[ZERO].start, work.ranges[ZERO].end) == (5, 10)
    assert work.positions.start_ms == PLANNED_MS
    assert work.positions.first_hour == Hour.parse("2026-11-15T09")


def test_start_latest_leaves_what_is_there_already() -> None:
    work = plan({ZERO: at(0, 10)}, stream=STREAM.model_copy(update={"start": "latest"}))
    assert work.ranges[ZERO].splits == ()
    assert work.positions.shards[ZERO].start == 10
    assert work.positions.start_ms == PLANNED_MS


def test_the_next_plan_goes_on_where_the_last_one_ended() -> None:
    work = plan({ZERO: at(3, 30)}, consumed(10))
    assert (work.ranges[ZERO].start, work.ranges[ZERO].end) == (10, 30)
    assert work.ranges[ZERO].proof is Proof.END_OFFSET


def test_an_earlier_interval_moves_the_start_back_when_nothing_is_out_of_reach() -> None:
    earlier = Interval(SEVEN.start_ms - 5 * HOUR_MS, SEVEN.start_ms - 4 * HOUR_MS)
    assert plan({ZERO: at(0, 10)}, consumed(10), interval=earlier).positions.start_ms == earlier.start_ms


def test_the_start_never_moves_back_over_hours_whose_lines_the_first_shift_put_aside() -> None:
    log = {ZERO: at(0, 10)}
    first = plan(log)
    oldest = Interval(first.window.past_ms, first.window.past_ms + HOUR_MS)
    moved = plan(log, first.positions, interval=oldest).positions
    assert moved.start_ms == moved.first_ms == oldest.start_ms
    older = Interval(oldest.start_ms - HOUR_MS, oldest.start_ms)
    for positions in (first.positions, moved):
        with pytest.raises(
            WrongUse, match=r"Cannot plan clicks/20261108T0600: lines older than 2026-11-08T07.* _skewed"
        ):
            plan(log, positions, interval=older)


def test_an_interval_older_than_a_retired_first_timeline_is_refused() -> None:
    first_ms = SEVEN.start_ms
    backfilled = Backfill(from_ms=first_ms - 5 * HOUR_MS, to_ms=first_ms, append_time=False, begin=(0,), end=(7,))
    later = ShardPosition(start=3, next=9, watermark_ms=SEVEN.end_ms, digest=None)
    before = Positions(start_ms=PLANNED_MS, first_ms=first_ms, backfills=(backfilled,))
    before = before.with_shards({Shard(2, 0): later})
    log = {Shard(2, 0): at(0, 9)}
    for start_ms in (first_ms - 9 * HOUR_MS, first_ms - HOUR_MS):
        with pytest.raises(WrongUse, match=r"older than 2026-11-15T07.* lay in timeline 1, which is retired"):
            plan(log, before, interval=Interval(start_ms, start_ms + HOUR_MS))
    reaching_over = Interval(first_ms - HOUR_MS // 2, first_ms + HOUR_MS // 2)
    for interval in (INTERVAL, reaching_over):
        assert plan(log, before, interval=interval).positions.first_hour == Hour(first_ms - 5 * HOUR_MS)


def test_an_earlier_interval_proves_nothing_when_the_beginning_was_not_read() -> None:
    earlier = Interval(SEVEN.start_ms - 5 * HOUR_MS, SEVEN.start_ms - 4 * HOUR_MS)
    before = consumed(10, start=4)
    assert plan({ZERO: at(0, 10)}, before, interval=earlier).positions.start_ms == before.start_ms


def test_a_partition_that_appears_later_begins_at_0_and_holds_no_earlier_hour() -> None:
    work = plan({ZERO: at(0, 10), Shard(1, 1): at(0, 7)}, consumed(10))
    assert (work.ranges[Shard(1, 1)].start, work.ranges[Shard(1, 1)].end) == (0, 7)
    assert work.positions.shards[Shard(1, 1)].watermark_ms == SEVEN.start_ms


def test_an_open_transaction_cuts_the_range_and_its_proof() -> None:
    work = plan({ZERO: at(0, 10, stable=6)})
    assert (work.ranges[ZERO].end, work.ranges[ZERO].proof) == (6, Proof.UNSTABLE)


def test_a_start_that_kafka_no_longer_has_is_an_error_and_no_skip() -> None:
    with pytest.raises(DataLoss, match=r"Cannot plan clicks/0001-0: start 40 is gone, Kafka begins at 97"):
        plan({ZERO: at(97, 120)}, consumed(40))


def test_a_log_that_went_back_is_an_error() -> None:
    with pytest.raises(DataLoss, match=r"start 40 is ahead, Kafka ends at 12"):
        plan({ZERO: at(0, 12)}, consumed(40))


def test_the_window_reaches_from_the_lowest_watermark_to_the_time_of_planning() -> None:
    work = plan({ZERO: at(0, 10)}, consumed(10))
    assert work.window.past_ms == SEVEN.start_ms - 7 * 24 * HOUR_MS
    assert work.window.future_ms == PLANNED_MS + HOUR_MS


@given(st.integers(0, 10**12), st.integers(0, 10**9), st.integers(1, 10**7))
def test_splits_tile_the_range_evenly(start: int, length: int, most: int) -> None:
    end = start + min(length, most * 50)
    edges = (start, *split_points(start, end, most), end)
    sizes = [high - low for low, high in pairwise(edges)]
    assert sum(sizes) == end - start
    if end > start:
        assert min(sizes) > 0
        assert max(sizes) <= most
        assert max(sizes) - min(sizes) <= 1


def test_with_offset_reset_a_lost_start_becomes_a_gap() -> None:
    earliest = STREAM.model_copy(update={"offset_reset": "earliest"})
    latest = STREAM.model_copy(update={"offset_reset": "latest"})
    found = plan({ZERO: at(97, 120)}, consumed(40), stream=earliest).ranges[ZERO]
    assert (found.lost_from, found.start, found.end) == (40, 97, 120)
    found = plan({ZERO: at(97, 120)}, consumed(40), stream=latest).ranges[ZERO]
    assert (found.lost_from, found.start, found.end) == (40, 120, 120)


def test_a_backlog_is_cut_and_a_cut_range_proves_nothing() -> None:
    small = STREAM.model_copy(update={"max_records": 10})
    work = plan({ZERO: at(0, 100), Shard(1, 1): at(0, 2)}, stream=small)
    assert (work.ranges[ZERO].end, work.ranges[ZERO].proof) == (8, Proof.CUT)
    assert (work.ranges[Shard(1, 1)].end, work.ranges[Shard(1, 1)].proof) == (2, Proof.END_OFFSET)


def test_a_start_time_begins_at_its_offset() -> None:
    timed = STREAM.model_copy(update={"start": datetime(2026, 11, 15, tzinfo=UTC)})
    work = plan_ranges(
        stream=timed,
        interval=INTERVAL,
        planned_ms=PLANNED_MS,
        positions=Positions(),
        offsets={ZERO: at(3, 100)},
        starts={ZERO: 40},
    )
    assert (work.ranges[ZERO].start, work.positions.start_ms) == (40, PLANNED_MS)


@pytest.mark.parametrize(
    ("stored", "found", "records_may_vanish", "wanted"),
    [
        ("a", "a", False, False),
        ("a", "b", False, True),
        ("a", "b", True, True),
        ("a", None, False, True),
        ("a", None, True, False),
        (None, None, False, False),
        (None, "a", False, False),
        (UNCONFIRMED, "a", False, True),
        (UNCONFIRMED, None, True, True),
    ],
)
def test_a_log_is_known_by_the_record_before_next_unless_compaction_took_it(
    stored: str | None, found: str | None, records_may_vanish: bool, wanted: bool
) -> None:
    assert is_replaced(stored, found, records_may_vanish=records_may_vanish) is wanted


def test_a_topic_that_was_made_again_leaves_nothing_of_the_old_logs_of_its_other_shards() -> None:
    one, elsewhere = Shard(1, 1), Shard(2, 0)
    # Nothing was consumed of the second shard: below a transaction that was open there may have been records.
    rows = {ZERO: ("ab", 5), one: (None, 0), elsewhere: ("cd", 7)}
    known = {
        shard: ShardPosition(start=0, next=reached, watermark_ms=SEVEN.start_ms, digest=digest)
        for shard, (digest, reached) in rows.items()
    }
    held = tuple(HeldEnd(shard=str(shard), end=9, until_ms=SEVEN.end_ms) for shard in known)
    before = Positions(start_ms=0, first_ms=0, held=held).with_shards(known)
    after = _without_digests(before, ZERO)
    assert {shard: row.digest for shard, row in after.shards.items()} == {ZERO: "ab", one: UNCONFIRMED, elsewhere: "cd"}
    assert [found.shard for found in after.held] == ["0002-0"]
    check_confirmed("clicks", before)
    with pytest.raises(DataLoss, match="clicks/0001-1: its topic was made again, and it was not confirmed since"):
        check_confirmed("clicks", after)
