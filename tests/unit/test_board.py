"""The colour of an hour: what its revision says, and for the others what the rule says."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.inspect.board import Calendar, Cell, State, last_days, state_of
from tidemark.ledger.records import Gap, HourRecord, HourState, Positions, ShardPosition
from tidemark.names import HOUR_MS, Hour, Shard
from tidemark.publish.rule import Cause, reasons_against

HOUR = Hour.parse("2026-11-15T07")
IN_TIME_MS = 65 * 60_000
GAP = Gap(shard="0001-0", start=1, end=2, since_ms=HOUR.start_ms)


def positions(watermark_ms: int, start_ms: int = 0) -> Positions:
    shard = ShardPosition(start=0, next=1, watermark_ms=watermark_ms, digest=None)
    return Positions(start_ms=start_ms, first_ms=start_ms).with_shards({Shard(1, 0): shard})


@pytest.mark.parametrize(
    ("record", "state"),
    [
        (HourRecord(revision=1, archives=1), State.READY),
        (HourRecord(revision=3, archives=3), State.REVISED),
        (HourRecord(revision=1), State.EMPTY),
        (HourRecord(revision=1, archives=1, gaps=(GAP,)), State.GAP),
        (HourRecord(revision=1, archives=1, dirty=(12,)), State.READY),
        (HourRecord(state=HourState.EXPIRED, revision=2, archives=1), State.EXPIRED),
        (HourRecord(state=HourState.EXPIRED), State.EXPIRED),
    ],
)
def test_an_hour_with_a_flag_stays_what_its_flag_made_it(record: HourRecord, state: State) -> None:
    assert state_of(HOUR, record, positions(HOUR.end_ms), HOUR.end_ms, IN_TIME_MS) is state


@pytest.mark.parametrize(
    ("after_end_ms", "state"),
    [(-1, State.OPEN), (0, State.LATE), (IN_TIME_MS - 1, State.LATE), (IN_TIME_MS, State.BLOCKED)],
)
def test_an_hour_without_a_flag_is_open_then_late_then_blocked(after_end_ms: int, state: State) -> None:
    now_ms = HOUR.end_ms + after_end_ms
    assert state_of(HOUR, HourRecord(), positions(HOUR.start_ms), now_ms, IN_TIME_MS) is state


def test_a_stream_that_was_never_planned_has_no_open_hours() -> None:
    assert state_of(HOUR, HourRecord(), Positions(), HOUR.end_ms, IN_TIME_MS) is State.BEFORE


@given(
    watermark_ms=st.integers(HOUR.start_ms - HOUR_MS, HOUR.end_ms + HOUR_MS),
    start_ms=st.integers(HOUR.start_ms - 2 * HOUR_MS, HOUR.end_ms + HOUR_MS),
    now_ms=st.integers(HOUR.start_ms, HOUR.end_ms + 4 * HOUR_MS),
    has_gap=st.booleans(),
    dirty=st.booleans(),
)
def test_the_colour_of_an_hour_without_a_flag_never_contradicts_the_rule(
    watermark_ms: int, start_ms: int, now_ms: int, has_gap: bool, dirty: bool
) -> None:
    record = HourRecord(gaps=(GAP,) if has_gap else (), dirty=(1,) if dirty else ())
    known = positions(watermark_ms, start_ms)
    causes = {reason.cause for reason in reasons_against(HOUR, record, known, now_ms)}
    state = state_of(HOUR, record, known, now_ms, IN_TIME_MS)
    assert (state is State.BEFORE) == (Cause.BEFORE_START in causes)
    assert (state is State.GAP) == (Cause.GAP in causes)
    assert (state is State.OPEN) == (Cause.NOT_OVER in causes and not has_gap)


def test_the_days_of_a_calendar_end_today_and_its_newest_ready_hour_is_found() -> None:
    days = last_days(Hour.parse("2026-03-01T00").start_ms, 3)
    assert days == ["2026-03-01", "2026-02-28", "2026-02-27"]
    nothing, ready = (Cell(State.OPEN, 0),) * 24, (Cell(State.READY, 1), *(Cell(State.BLOCKED, 0),) * 23)
    calendar = Calendar(stream="clicks", watermark_ms=None, days=dict(zip(days, (nothing, ready, ready), strict=True)))
    assert calendar.newest_ready == Hour.parse("2026-02-28T00")
    held = calendar.held()
    assert (len(held), held[0]) == (46, Hour.parse("2026-02-27T01"))


def test_an_hour_that_was_published_with_its_gap_is_not_held() -> None:
    cells = (Cell(State.GAP, 0), Cell(State.GAP, 1), *(Cell(State.LATE, 0),) * 22)
    calendar = Calendar(stream="clicks", watermark_ms=None, days={HOUR.day: cells})
    assert calendar.held() == [Hour.parse(f"{HOUR.day}T00")]


def test_the_oldest_open_hour_is_the_first_without_a_flag_that_the_stream_reaches() -> None:
    before, expired = Cell(State.BEFORE, 0), Cell(State.EXPIRED, 3)
    cells = (before, expired, Cell(State.GAP, 1), Cell(State.LATE, 0), *(Cell(State.OPEN, 0),) * 20)
    calendar = Calendar(stream="clicks", watermark_ms=None, days={HOUR.day: cells, "2020-01-01": (before,) * 24})
    assert calendar.oldest_open == Hour.parse(f"{HOUR.day}T03")
    assert Calendar(stream="clicks", watermark_ms=None, days={HOUR.day: (before,) * 24}).oldest_open is None


def test_a_gap_that_nobody_accepted_holds_the_next_revision_of_an_hour_that_is_ready() -> None:
    accepted = replace(GAP, accepted="known")
    held = HourRecord(state=HourState.READY, revision=1, gaps=(accepted, GAP))
    cells = [Cell.of(State.GAP, record) for record in (held, replace(held, gaps=(accepted,)), HourRecord(gaps=(GAP,)))]
    gone = Cell.of(State.EXPIRED, replace(held, state=HourState.EXPIRED))
    calendar = Calendar(stream="clicks", watermark_ms=None, days={HOUR.day: (*cells, gone)})
    assert [cell.is_held_by_gap for cell in (*cells, gone)] == [True, False, True, False]
    assert calendar.held_by_gaps() == 2
