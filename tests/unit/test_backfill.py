"""Backfills by record time as pure functions, attacked with times in any order, expiry and growth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.config import Stream
from tidemark.consume.advance import advance, hours_touched
from tidemark.errors import DataLoss, WrongUse
from tidemark.kafka import Offsets
from tidemark.ledger.records import Backfill, Gap, HourRecord, Positions, Proof, ShardPosition, Shift
from tidemark.names import HOUR_MS, Hour, Interval, Shard
from tidemark.plan.backfill import MOST_EDGES, is_backfill, plan_backfill
from tidemark.plan.planner import PlannedWork
from tidemark.publish.rule import reasons_against

STREAM = Stream(name="clicks", cluster="main", topic="clicks", root="hdfs:///clicks", owner="web", start="latest")
TAKING_WHAT_IS_LEFT = STREAM.model_copy(update={"offset_reset": "earliest"})
FIRST = Hour.parse("2026-11-15T07")
"""The first planned hour; the stream starts 85 minutes later, when that was planned."""
START_MS = FIRST.end_ms + 25 * 60_000
ZERO, ONE = Shard(1, 0), Shard(1, 1)


def before(hours: int) -> Hour:
    return Hour(FIRST.start_ms - hours * HOUR_MS)


@dataclass
class World:
    """Logs as the record times of their offsets; each shard of the stream starts where its log ended."""

    logs: Mapping[Shard, Sequence[int]]
    begins: dict[Shard, int] = field(default_factory=dict)
    stream: Stream = STREAM
    append_time: bool = False
    positions: Positions = field(init=False)
    read: dict[Shard, list[int]] = field(init=False)
    gaps: list[Gap] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.read = {shard: [] for shard in self.logs}
        self.positions = Positions(start_ms=START_MS, first_ms=FIRST.start_ms).with_shards(
            {
                shard: ShardPosition(start=len(log), next=len(log), watermark_ms=START_MS, digest=None)
                for shard, log in self.logs.items()
            }
        )

    def offset_at(self, shard: Shard, time_ms: int) -> int:
        log = self.logs[shard]
        kept = range(self.begins.get(shard, 0), len(log))
        return next((offset for offset in kept if log[offset] >= time_ms), len(log))

    def plan(self, hour: Hour) -> PlannedWork:
        return plan_backfill(
            stream=self.stream,
            interval=Interval(hour.start_ms, hour.end_ms),
            positions=self.positions,
            offsets={
                shard: Offsets(begin=self.begins.get(shard, 0), stable=len(log), end=len(log))
                for shard, log in self.logs.items()
            },
            begins={shard: self.offset_at(shard, hour.start_ms) for shard in self.logs},
            ends={shard: self.offset_at(shard, hour.end_ms) for shard in self.logs},
            append_time=self.append_time,
        )

    def backfill(self, hour: Hour) -> dict[Shard, list[int]]:
        """The offsets that it read."""
        work = self.plan(hour)
        shift = Shift(
            id="backfill",
            number=1,
            start_ms=hour.start_ms,
            end_ms=hour.end_ms,
            planned_ms=START_MS,
            timelines_version=1,
            window=work.window,
            timestamp="kafka",
            compression="small",
            ranges=Shift.columns(work.ranges),
            by_record_time=work.by_record_time,
        )
        advanced = advance(self.positions, shift, {})
        assert advanced.positions.shards == self.positions.shards
        self.positions = advanced.positions
        self.gaps += advanced.gaps
        found = {shard: list(range(row.start, row.end)) for shard, row in work.ranges.items()}
        for shard, offsets in found.items():
            self.read[shard] += offsets
        return found

    def is_ready(self, hour: Hour) -> bool:
        held = tuple(gap for gap in self.gaps if hour in hours_touched(gap))
        return not reasons_against(hour, HourRecord(gaps=held), self.positions, START_MS)


def times(*hours_and_minutes: tuple[int, int]) -> list[int]:
    """Record times as (hours before the first planned one, minutes into that hour)."""
    return [before(hours).start_ms + minutes * 60_000 for hours, minutes in hours_and_minutes]


def test_only_what_is_older_than_the_first_plan_of_a_stream_that_left_something_out_is_a_backfill() -> None:
    world = World({ZERO: times((1, 0))})
    hour = before(1)
    assert is_backfill(Interval(hour.start_ms, hour.end_ms), world.positions)
    assert not is_backfill(Interval(FIRST.start_ms, FIRST.end_ms), world.positions)
    assert not is_backfill(Interval(hour.start_ms, hour.end_ms), World({ZERO: []}).positions)
    assert not is_backfill(Interval(hour.start_ms, hour.end_ms), Positions())


def test_each_hour_takes_its_records_and_the_last_one_all_that_is_left_up_to_the_streams_start() -> None:
    world = World({ZERO: times((3, 0), (3, 59), (2, 1), (1, 1), (0, 5), (-1, 5))})
    assert world.backfill(before(3)) == {ZERO: [0, 1]}
    assert world.backfill(before(2)) == {ZERO: [2]}
    assert world.backfill(before(1)) == {ZERO: [3, 4, 5]}


def test_no_hour_is_ready_before_the_backfill_reaches_the_streams_start_and_then_all_are() -> None:
    world = World({ZERO: times((3, 0), (2, 1), (3, 50), (1, 1))})
    world.backfill(before(3))
    world.backfill(before(2))
    assert not any(world.is_ready(before(hours)) for hours in (3, 2, 1, 0))
    world.backfill(before(1))
    assert [world.is_ready(before(hours)) for hours in (4, 3, 2, 1, 0)] == [False, True, True, True, True]
    assert world.positions.backfills == (
        Backfill(from_ms=before(3).start_ms, to_ms=FIRST.start_ms, append_time=False, begin=(0,), end=(4,)),
    )


def test_with_the_brokers_own_times_an_hour_is_ready_at_once() -> None:
    world = World({ZERO: times((3, 0), (2, 1), (1, 1))}, append_time=True)
    world.backfill(before(3))
    assert world.is_ready(before(3))
    assert not world.is_ready(before(2))


def test_a_record_of_the_year_2099_moves_nothing_out_of_reach() -> None:
    world = World({ZERO: [*times((3, 0)), 4_070_908_800_000, *times((3, 5), (2, 5), (1, 5))]})
    assert world.backfill(before(3)) == {ZERO: [0]}
    assert world.backfill(before(2)) == {ZERO: []}
    assert not world.is_ready(before(3))
    assert world.backfill(before(1)) == {ZERO: [1, 2, 3, 4]}
    assert world.is_ready(before(3))


def test_lost_records_that_may_belong_to_the_hour_are_an_error_and_no_skip() -> None:
    world = World({ZERO: times((3, 0), (2, 1), (2, 30), (1, 1))}, begins={ZERO: 2})
    with pytest.raises(DataLoss, match=r"Cannot backfill clicks/0001-0 for .*: Kafka begins at 2, .* fail"):
        world.backfill(before(2))
    assert world.backfill(before(1)) == {ZERO: [3]}


def test_with_offset_reset_lost_records_hold_every_hour_that_they_may_belong_to() -> None:
    log = times((3, 0), (2, 1), (2, 30), (1, 1))
    world = World({ZERO: log}, begins={ZERO: 2}, stream=TAKING_WHAT_IS_LEFT)
    world.backfill(before(1))
    assert world.is_ready(before(1))
    assert world.backfill(before(2)) == {ZERO: [2]}
    assert world.backfill(before(3)) == {ZERO: []}
    assert not any(world.is_ready(before(hours)) for hours in (3, 2, 1))
    assert [(gap.start, gap.end) for gap in world.gaps] == [(0, 2), (0, 2)]

    world = World({ZERO: log}, begins={ZERO: 2}, stream=TAKING_WHAT_IS_LEFT, append_time=True)
    for hours in (1, 2, 3):
        world.backfill(before(hours))
    assert [world.is_ready(before(hours)) for hours in (3, 2, 1)] == [False, False, True]


def test_a_stream_that_began_with_what_kafka_still_had_cannot_prove_an_older_hour() -> None:
    world = World({ZERO: times((2, 0), (2, 1), (2, 2))}, begins={ZERO: 3})
    with pytest.raises(DataLoss, match="Kafka begins at 3"):
        world.backfill(before(2))


def test_the_window_reaches_from_the_hour_to_the_streams_start() -> None:
    window = World({ZERO: times((1, 0))}).plan(before(1)).window
    assert window.past_ms == before(1).start_ms - 7 * 24 * HOUR_MS
    assert window.future_ms == START_MS + HOUR_MS


def test_a_range_of_a_backfill_proves_nothing_of_the_watermark() -> None:
    assert World({ZERO: times((1, 0))}).plan(before(1)).ranges[ZERO].proof is Proof.RECORD_TIME


def test_backfills_that_do_not_meet_are_refused_when_they_would_not_fit_into_a_node() -> None:
    world = World({ZERO: times((1, 0))})
    many = tuple(
        Backfill(from_ms=number, to_ms=number, append_time=False, begin=(0,), end=(0,)) for number in range(MOST_EDGES)
    )
    world.positions = replace(world.positions, backfills=many)
    with pytest.raises(WrongUse, match=r"Cannot backfill clicks/.*: 10000 backfills of 1 partitions do not meet"):
        world.plan(before(1))


OLDEST = 6
some_times = st.lists(st.integers(-OLDEST * HOUR_MS, HOUR_MS).map(lambda ms: FIRST.start_ms + ms), max_size=12)


@given(
    st.lists(some_times, min_size=1, max_size=3),
    st.permutations(range(1, OLDEST + 1)),
    st.integers(0, OLDEST),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, OLDEST), st.integers(0, 2), st.integers(0, 12)), max_size=3),
)
def test_no_offset_is_read_twice_and_a_ready_hour_has_every_record_that_kafka_had(
    logs: list[list[int]], order: list[int], count: int, append_time: bool, expiries: list[tuple[int, int, int]]
) -> None:
    world = World(
        {Shard(1, partition): sorted(log) if append_time else log for partition, log in enumerate(logs)},
        stream=TAKING_WHAT_IS_LEFT,
        append_time=append_time,
    )
    kept: dict[tuple[Shard, int], int] = {}
    for step, hours in enumerate(order[:count]):
        for when, partition, begin in expiries:
            shard = Shard(1, partition)
            if when == step and shard in world.logs:
                world.begins[shard] = max(world.begins.get(shard, 0), min(begin, len(world.logs[shard])))
        kept.update({(shard, hours): world.begins.get(shard, 0) for shard in world.logs})
        world.backfill(before(hours))
    for shard, offsets in world.read.items():
        assert len(set(offsets)) == len(offsets)
        for hours in range(1, OLDEST + 1):
            hour = before(hours)
            if world.is_ready(hour):
                wanted = {o for o, time in enumerate(world.logs[shard]) if hour.start_ms <= time < hour.end_ms}
                assert {offset for offset in wanted if offset >= kept[shard, hours]} <= set(offsets)
    if count == OLDEST and not expiries:
        assert world.is_ready(before(OLDEST))
        assert all(sorted(world.read[shard]) == list(range(len(log))) for shard, log in world.logs.items())
