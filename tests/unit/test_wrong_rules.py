"""Neighbouring rules that look right, each beside the case in which it flags an hour too early, or never.

The right answer comes from planner, commit and rule together.
"""

from collections.abc import Callable, Iterator

import pytest
from tests.unit.test_never_too_early import SEVEN, Record, World

from tidemark.config import Stream
from tidemark.ledger.records import Gap, HourRecord
from tidemark.names import HOUR_MS, Hour, Shard
from tidemark.publish.rule import reasons_against

EIGHT = Hour(SEVEN.end_ms)
YEAR_1970, YEAR_2038 = 1000, 2_145_916_800_000
SETTINGS = {"name": "s", "cluster": "c", "topic": "t", "root": "hdfs:///s", "owner": "o"}
GAP = Gap(shard="0001-0", start=40, end=97, since_ms=SEVEN.start_ms, until_ms=SEVEN.end_ms)

Rule = Callable[[World, Hour, HourRecord], bool]


def after(*logs: list[int], hanging: tuple[int, ...] = (), hours: int = 1) -> World:
    """The world after the runs of so many hours, with records of these times in each partition."""
    world = World(
        Stream.model_validate(SETTINGS), logs=[[Record(time, SEVEN.start_ms) for time in log] for log in logs]
    )
    world.hanging = {partition: [0] for partition in hanging}
    for _ in range(hours):
        world.now_ms = world.next_hour.end_ms + world.grace_ms
        world.run(commits=True)
    return world


def after_a_partition_was_added() -> World:
    """It has lines already, in a transaction that is not over."""
    world = after([SEVEN.start_ms])
    world.logs.append([Record(EIGHT.start_ms, EIGHT.start_ms)])
    world.hanging = {1: [0]}
    world.now_ms = EIGHT.end_ms + world.grace_ms
    world.run(commits=True)
    return world


def read_times(world: World) -> Iterator[tuple[Shard, list[int]]]:
    for shard, position in world.positions.shards.items():
        yield shard, [record.time_ms for record in world.logs[shard.partition][: position.next]]


def right(world: World, hour: Hour, record: HourRecord) -> bool:
    return not reasons_against(hour, record, world.positions, world.now_ms)


def by_the_start_of_the_hour(world: World, hour: Hour, _: HourRecord) -> bool:
    return all(position.watermark_ms >= hour.start_ms for position in world.positions.shards.values())


def by_the_quickest_shard(world: World, hour: Hour, _: HourRecord) -> bool:
    return any(position.watermark_ms >= hour.end_ms for position in world.positions.shards.values())


def by_the_newest_record(world: World, hour: Hour, _: HourRecord) -> bool:
    return all(max(times, default=0) >= hour.end_ms for _, times in read_times(world))


def by_the_last_record(world: World, hour: Hour, _: HourRecord) -> bool:
    return all(times[-1] >= hour.end_ms for _, times in read_times(world))


def by_shards_that_have_lines_of_it(world: World, hour: Hour, _: HourRecord) -> bool:
    positions = world.positions.shards
    return all(positions[shard].watermark_ms >= hour.end_ms for shard, times in read_times(world) if times)


def only_with_a_line(world: World, hour: Hour, record: HourRecord) -> bool:
    return right(world, hour, record) and hour in hours_read(world)


def only_with_an_hour_for_each_record(world: World, hour: Hour, record: HourRecord) -> bool:
    return right(world, hour, record) and hours_read(world) <= {hour}


def by_watermarks_alone(world: World, hour: Hour, _: HourRecord) -> bool:
    return right(world, hour, HourRecord())


def hours_read(world: World) -> set[Hour]:
    return {Hour.of(time) for _, times in read_times(world) for time in times}


EARLY, LATE = SEVEN.start_ms, SEVEN.end_ms
NOTHING = HourRecord()
READY, HELD = True, False
CASES: dict[str, tuple[bool, World, Hour, HourRecord, Rule]] = {
    "a run up to the start of the hour": (HELD, after([EARLY]), EIGHT, NOTHING, by_the_start_of_the_hour),
    "a partition that lags": (HELD, after([LATE], [LATE], hanging=(1,)), SEVEN, NOTHING, by_the_quickest_shard),
    "a partition that is quiet": (READY, after([LATE], [EARLY]), SEVEN, NOTHING, by_the_newest_record),
    "a partition that nobody wrote to": (READY, after([LATE], []), SEVEN, NOTHING, by_the_newest_record),
    "a new partition": (HELD, after_a_partition_was_added(), EIGHT, NOTHING, by_shards_that_have_lines_of_it),
    "an empty hour": (READY, after([], []), SEVEN, NOTHING, only_with_a_line),
    "skewed lines": (READY, after([EARLY, YEAR_2038], [YEAR_1970]), SEVEN, NOTHING, only_with_an_hour_for_each_record),
    "a line of the year 2038": (HELD, after([EARLY, YEAR_2038]), EIGHT, NOTHING, by_the_newest_record),
    "a line of the year 1970": (READY, after([LATE, YEAR_1970]), SEVEN, NOTHING, by_the_last_record),
    "a gap": (HELD, after([EARLY]), SEVEN, HourRecord(gaps=(GAP,)), by_watermarks_alone),
    "lines that are not archived": (HELD, after([EARLY]), SEVEN, HourRecord(dirty=(1,)), by_watermarks_alone),
}


@pytest.mark.parametrize("case", CASES)
def test_the_neighbouring_rule_gives_the_other_answer(case: str) -> None:
    is_ready, world, hour, record, wrong = CASES[case]
    assert right(world, hour, record) is is_ready
    assert wrong(world, hour, record) is not is_ready


def test_a_day_of_empty_hours_is_ready_and_would_not_be_by_the_hours_that_have_files() -> None:
    day = [Hour(SEVEN.start_ms + number * HOUR_MS) for number in range(24)]
    world = after([EARLY], [], hours=24)
    assert all(right(world, hour, NOTHING) for hour in day)
    assert hours_read(world) == {SEVEN}
