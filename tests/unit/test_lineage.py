"""Timelines as pure functions: attacked with random graphs, switches, growth and orders of completion."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.config import Stream
from tidemark.consume.advance import advance
from tidemark.kafka import Offsets
from tidemark.ledger.records import (
    HourRecord,
    Parents,
    Positions,
    Proof,
    Retirement,
    ShardPosition,
    Shift,
    ShiftRange,
    Timeline,
    Window,
)
from tidemark.lineage import Cursor, cursor_of, growths, is_free, kind_of_parents, live, parents_of
from tidemark.names import HOUR_MS, Hour, Interval, Shard
from tidemark.plan.planner import PlannedWork, plan_ranges
from tidemark.plan.switch import close_and_open
from tidemark.publish.rule import reasons_against

SEVEN = Hour.parse("2026-11-15T07")
STREAM = Stream(name="s", cluster="c", topic="t", root="hdfs:///s", owner="o")


def timeline(partitions: int, parents: Parents = Parents.SAME, ends: tuple[int, ...] | None = None) -> Timeline:
    found = Timeline(
        cluster="c", topic="t", topic_id="id", switched_ms=SEVEN.start_ms, partitions=partitions, parents=parents
    )
    return found if ends is None else found.ending(ends)


def test_a_shard_follows_the_same_partition_when_the_numbers_match() -> None:
    timelines = {1: timeline(2, ends=(5, 0)), 2: timeline(2)}
    assert parents_of(Shard(2, 1), timelines) == (Shard(1, 1),)
    assert parents_of(Shard(1, 1), timelines) == ()


@pytest.mark.parametrize(("before", "after"), [(4, 6), (6, 4)])
def test_a_shard_follows_all_partitions_when_the_numbers_differ(before: int, after: int) -> None:
    timelines = {1: timeline(before, ends=(0,) * before), 2: timeline(after, kind_of_parents(before, after))}
    assert [shard.partition for shard in parents_of(Shard(2, 3), timelines)] == list(range(before))


@pytest.mark.parametrize("parents", [Parents.SAME, Parents.ALL])
def test_a_partition_that_was_added_in_place_has_no_parents(parents: Parents) -> None:
    timelines = {1: timeline(2, ends=(5, 0)), 2: timeline(2, parents)}
    assert parents_of(Shard(2, 2), timelines) == ()


def test_a_partition_that_the_old_topic_got_after_its_end_is_nobodys_parent() -> None:
    timelines = {1: timeline(2, ends=(5, 0)).ending((5, 0, 3)), 2: timeline(3, Parents.ALL)}
    assert parents_of(Shard(2, 0), timelines) == (Shard(1, 0), Shard(1, 1))
    assert [(growth.shard, growth.closed_at, growth.end) for growth in growths(timelines)] == [(Shard(1, 2), 0, 3)]


def test_a_missing_parent_counts_only_when_its_timeline_was_retired() -> None:
    timelines = {1: timeline(1, ends=(5,)), 2: timeline(1)}
    assert not is_free(Shard(2, 0), timelines, set())
    assert not is_free(Shard(2, 0), {2: timelines[2]}, set())
    retired = {**timelines, 1: replace(timelines[1], retired_ms=SEVEN.end_ms)}
    assert is_free(Shard(2, 0), retired, set())
    assert list(live(retired)) == [2]


def test_what_grew_after_the_switch_is_told_with_both_ends() -> None:
    timelines = {1: timeline(2, ends=(42, 0)).ending((50, 0)), 2: timeline(2)}
    (growth,) = growths(timelines)
    assert timelines[1].latest == (49, -1)
    assert "shard 0001-0 was closed at offset 42" in str(growth)
    assert "has grown to 50 since" in str(growth)


# Cursors


def test_the_ends_of_adjacent_empty_timelines_are_one_place() -> None:
    timelines = {1: timeline(1, ends=(8,)), 2: timeline(1, ends=(0,)), 3: timeline(1)}
    found = {cursor_of(Shard(order, 0), offset, timelines) for order, offset in [(1, 7), (2, -1), (3, -1)]}
    assert found == {Cursor(1, 7)}
    assert Cursor(1, 6) < Cursor(1, 7) < cursor_of(Shard(3, 0), 0, timelines)


def test_a_cursor_before_the_first_record_of_all_is_that_of_the_first_timeline() -> None:
    timelines = {1: timeline(1, ends=(0,)), 2: timeline(1)}
    assert cursor_of(Shard(2, 0), -1, timelines) == Cursor(1, -1)


def test_with_other_numbers_of_partitions_a_beginning_is_no_end() -> None:
    timelines = {1: timeline(1, ends=(8,)), 2: timeline(2, Parents.ALL)}
    assert cursor_of(Shard(2, 0), -1, timelines) == Cursor(2, -1) > cursor_of(Shard(1, 0), 7, timelines)


def test_the_beginning_of_a_partition_that_was_added_in_place_is_no_end() -> None:
    timelines = {1: timeline(1, ends=(8,)).ending((8, 2)), 2: timeline(1)}
    assert cursor_of(Shard(2, 1), -1, timelines) == Cursor(2, -1)


lengths = st.lists(st.integers(0, 3), min_size=1, max_size=6)


@given(lengths, st.data())
def test_cursors_are_totally_ordered_as_the_records_lie(found: list[int], data: st.DataObject) -> None:
    """Against a model: how many records lie at or before a place, over all timelines."""
    timelines = {order: timeline(1, ends=(length,)) for order, length in enumerate(found, 1)}
    timelines[len(found) + 1] = timeline(1)
    place = st.integers(1, len(found) + 1).flatmap(
        lambda order: st.tuples(st.just(order), st.integers(-1, found[order - 1] - 1 if order <= len(found) else 3))
    )
    one, other = data.draw(st.tuples(place, place))
    left, right = (sum(found[: order - 1]) + offset + 1 for order, offset in (one, other))
    first, second = (cursor_of(Shard(order, 0), offset, timelines) for order, offset in (one, other))
    assert (first < second, first == second) == (left < right, left == right)


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=2, max_size=6), st.data())
def test_a_cursor_is_its_own_name_and_stays_right_whatever_is_switched_later(
    found: list[list[int]], data: st.DataObject
) -> None:
    """Flags and manifests never change: what they name must not depend on when they were written."""
    timelines: dict[int, Timeline] = {}
    for order, ends in enumerate(found, 1):
        kind = kind_of_parents(len(found[order - 2]), len(ends)) if order > 1 else Parents.SAME
        timelines[order] = timeline(len(ends), kind, ends=tuple(ends))
    order = data.draw(st.integers(1, len(found)))
    partition = data.draw(st.integers(0, len(found[order - 1]) - 1))
    offset = data.draw(st.integers(-1, found[order - 1][partition] - 1))
    cursor = cursor_of(Shard(order, partition), offset, timelines)
    assert cursor_of(Shard(cursor.order, partition), cursor.offset, timelines) == cursor
    before = {number: timelines[number] for number in range(1, order)} | {order: timeline(len(found[order - 1]))}
    before[order] = replace(before[order], parents=timelines[order].parents)
    assert cursor_of(Shard(order, partition), offset, before) == cursor


# Completion


def shift_of(work: PlannedWork, end_ms: int) -> Shift:
    return Shift(
        id="20261115T0700",
        number=1,
        start_ms=end_ms - HOUR_MS,
        end_ms=end_ms,
        planned_ms=end_ms,
        timelines_version=1,
        window=Window(past_ms=0, future_ms=end_ms),
        timestamp="kafka",
        compression="small",
        ranges=Shift.columns(work.ranges),
    )


def test_a_retired_timeline_leaves_the_positions_and_what_was_left_of_it_is_a_gap_up_to_the_act() -> None:
    done = ShardPosition(start=0, next=9, watermark_ms=SEVEN.start_ms, digest=None, completed=True)
    left = ShardPosition(start=0, next=4, watermark_ms=SEVEN.start_ms, digest=None)
    young = ShardPosition(start=0, next=0, watermark_ms=SEVEN.start_ms, digest=None)
    before = Positions(start_ms=0, first_ms=0).with_shards({Shard(1, 0): done, Shard(1, 1): left, Shard(2, 0): young})
    ranges = {Shard(1, 1): ShiftRange(lost_from=4, start=7, end=7, proof=Proof.OPERATOR)}
    work = PlannedWork(
        positions=before,
        ranges={Shard(1, 0): ShiftRange(lost_from=9, start=9, end=9, proof=Proof.OPERATOR), **ranges},
        window=Window(past_ms=0, future_ms=0),
    )
    act = replace(shift_of(work, SEVEN.end_ms), retirement=Retirement(timeline=1, abandoned=True))
    after = advance(before, act, {})
    assert list(after.positions.shards) == [Shard(2, 0)]
    (gap,) = after.gaps
    assert (gap.shard, gap.start, gap.end) == ("0001-1", 4, 7)
    assert (gap.since_ms, gap.until_ms) == (SEVEN.start_ms, SEVEN.end_ms)


@dataclass
class World:
    """Topics of several timelines that grow, hang and are switched, with one commit after the other."""

    stream: Stream
    logs: dict[int, list[int]] = field(default_factory=lambda: {1: [0, 0]})
    hanging: dict[Shard, int] = field(default_factory=dict)
    timelines: dict[int, Timeline] = field(default_factory=lambda: {1: timeline(2)})
    positions: Positions = field(default_factory=Positions)
    covered: dict[Shard, int] = field(default_factory=dict)
    asked: dict[tuple[Shard, int], int] = field(default_factory=dict)
    """The end of each shard's log when an interval's plan asked for it first."""
    hour: Hour = SEVEN

    def write(self, order: int, partition: int, amount: int) -> None:
        log = self.logs[self.one_of(order)]
        log[partition % len(log)] += amount

    def one_of(self, number: int) -> int:
        """Of the timelines that are asked for."""
        return sorted(self.logs)[number % len(self.logs)]

    def hang(self, order: int, partition: int) -> None:
        number = self.one_of(order)
        shard = Shard(number, partition % len(self.logs[number]))
        self.hanging.setdefault(shard, self.logs[number][shard.partition])

    def switch(self, partitions: int) -> None:
        if not self.positions.shards:
            return
        last = max(self.timelines)
        opened = close_and_open(
            order=last,
            closing=self.timelines[last],
            ends=tuple(self.logs[last]),
            opening=timeline(partitions),
            begins=(0,) * partitions,
            positions=self.positions,
        )
        self.timelines |= opened.timelines
        self.positions = opened.positions
        self.logs[last + 1] = [0] * partitions

    def retire(self, order: int) -> None:
        """As the command does it: a closed timeline all of whose shards are completed."""
        retired = self.one_of(order)
        rows = self.positions.shards
        if self.timelines[retired].ends is None or not all(rows[s].completed for s in rows if s.timeline == retired):
            return
        self.timelines[retired] = replace(self.timelines[retired], retired_ms=self.hour.start_ms)
        self.positions = self.positions.with_shards({s: row for s, row in rows.items() if s.timeline != retired})
        del self.logs[retired]

    def offsets(self) -> dict[Shard, Offsets]:
        return {
            Shard(order, partition): Offsets(begin=0, stable=self.hanging.get(Shard(order, partition), end), end=end)
            for order, log in self.logs.items()
            for partition, end in enumerate(log)
        }

    def run(self) -> None:
        for order, found in live(self.timelines).items():
            if found.ends is not None:
                self.timelines[order] = found.ending(self.logs[order])
        work = plan_ranges(
            stream=self.stream,
            interval=Interval(self.hour.start_ms, self.hour.end_ms),
            planned_ms=self.hour.end_ms,
            positions=self.positions,
            offsets=self.offsets(),
            timelines=self.timelines,
        )
        shift = shift_of(work, self.hour.end_ms)
        after = advance(work.positions, shift, {}).positions
        self.check(work, after)
        self.positions = after
        if not shift.is_cut:
            self.hour = Hour(self.hour.end_ms)

    def check(self, work: PlannedWork, after: Positions) -> None:
        completed = {shard for shard, position in after.shards.items() if position.completed}
        for shard, found in work.ranges.items():
            assert found.start == self.covered.get(shard, 0)
            self.covered[shard] = found.end
            if found.end > found.start or found.proof is Proof.END_OFFSET:
                asked = {parent for parent in parents_of(shard, self.timelines) if parent.timeline in self.logs}
                assert asked <= completed
            self.asked.setdefault((shard, self.hour.end_ms), self.logs[shard.timeline][shard.partition])
            watermark_ms = after.shards[shard].watermark_ms
            if watermark_ms > work.positions.shards[shard].watermark_ms:
                assert found.end >= self.asked[shard, watermark_ms]
        for shard in completed:
            assert self.timelines[shard.timeline].ends is not None
            assert after.shards[shard].next == self.logs[shard.timeline][shard.partition]

    def check_ready(self) -> None:
        """Whatever is ready has everything that any topic had when it was last asked."""
        for start_ms in range(SEVEN.start_ms, self.hour.start_ms, HOUR_MS):
            if not reasons_against(Hour(start_ms), HourRecord(), self.positions, self.hour.end_ms):
                for shard, position in self.positions.shards.items():
                    assert position.completed or position.watermark_ms >= start_ms + HOUR_MS, shard


acts = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "run", "run", "switch", "hang", "settle", "retire"]),
        st.integers(0, 5),
        st.integers(0, 3),
        st.integers(0, 9),
    ),
    max_size=50,
)


@given(acts, st.integers(1, 30))
def test_no_child_moves_before_its_parents_and_nothing_is_completed_that_is_not_read_whole(
    sequence: list[tuple[str, int, int, int]], max_records: int
) -> None:
    world = World(STREAM.model_copy(update={"max_records": max_records}))
    for act, order, partition, amount in sequence:
        match act:
            case "write":
                world.write(order, partition, amount)
            case "run":
                world.run()
            case "switch":
                world.switch(1 + partition)
            case "hang":
                world.hang(order, partition)
            case "settle":
                world.hanging.clear()
            case "retire":
                world.retire(order)
        world.check_ready()
    world.hanging.clear()
    # Whatever happened: once nothing hangs, every record of every timeline is read.
    for _ in range(1 + sum(sum(log) for log in world.logs.values())):
        world.run()
    ends = {Shard(order, p): end for order, log in world.logs.items() for p, end in enumerate(log)}
    assert {shard: position.next for shard, position in world.positions.shards.items()} == ends
    newest = max(world.timelines)
    assert {s for s, row in world.positions.shards.items() if row.completed} == {s for s in ends if s.timeline < newest}
