import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tidemark.ledger.records import (
    Backfill,
    ByRecordTime,
    Gap,
    Head,
    HourRecord,
    Positions,
    Proof,
    Publication,
    ShardPosition,
    Shift,
    ShiftRange,
    ShiftRecord,
    ShiftState,
    Window,
    dump,
    parse,
)
from tidemark.names import Shard
from tidemark.plan.backfill import MOST_EDGES

offsets = st.integers(0, 2**62)
positions = st.builds(
    ShardPosition,
    start=offsets,
    next=offsets,
    watermark_ms=offsets,
    digest=st.none() | st.text("0123456789abcdef", min_size=16, max_size=16),
    completed=st.booleans(),
)
counts = st.lists(st.integers(1, 6), min_size=1, max_size=3)


def shift_of(ranges: dict[Shard, ShiftRange]) -> Shift:
    return Shift(
        id="20261115T0700",
        number=12,
        start_ms=0,
        end_ms=3_600_000,
        planned_ms=3_900_000,
        timelines_version=7,
        window=Window(past_ms=0, future_ms=9),
        timestamp="kafka",
        compression="small",
        ranges=Shift.columns(ranges),
    )


@given(counts, st.data())
def test_positions_survive_their_compact_form(partitions: list[int], data: st.DataObject) -> None:
    shards = {
        Shard(timeline + 1, partition): data.draw(positions)
        for timeline, count in enumerate(partitions)
        for partition in range(count)
    }
    stored = parse(Positions, dump(Positions(start_ms=77).with_shards(shards)))
    assert stored.shards == shards
    assert stored.start_ms == 77


@given(counts, st.data())
def test_a_shift_survives_its_compact_form(partitions: list[int], data: st.DataObject) -> None:
    ranges = {}
    for timeline, count in enumerate(partitions):
        for partition in range(count):
            edges = sorted(data.draw(st.lists(offsets, min_size=2, max_size=5, unique=True)))
            ranges[Shard(timeline + 1, partition)] = ShiftRange(
                lost_from=data.draw(st.integers(0, edges[0])),
                start=edges[0],
                end=edges[-1],
                points=tuple(edges[1:-1]),
                proof=data.draw(st.sampled_from(Proof)),
            )
    record = ShiftRecord(number=12, state=ShiftState.PLANNED, shift=shift_of(ranges))
    stored = parse(ShiftRecord, dump(record))
    assert stored.shift is not None
    assert stored.shift.shards == ranges


def test_5000_partitions_fit_into_a_node() -> None:
    shards = {
        Shard(1, partition): ShardPosition(
            start=10**12, next=10**12, watermark_ms=1_800_000_000_000, digest="0123456789abcdef"
        )
        for partition in range(5000)
    }
    ranges = {
        shard: ShiftRange(
            lost_from=10**12, start=10**12, end=10**12 + 10**7, points=(10**12 + 5,), proof=Proof.UNSTABLE
        )
        for shard in shards
    }
    planned = dump(ShiftRecord(number=1, state=ShiftState.PLANNED, shift=shift_of(ranges)))
    edges = tuple(10**12 for _ in shards)
    backfill = Backfill(from_ms=10**12, to_ms=10**12, append_time=False, begin=edges, end=edges)
    backfills = (backfill,) * (MOST_EDGES // len(shards))
    assert len(dump(Positions(start_ms=0, backfills=backfills).with_shards(shards))) + len(planned) < 1_000_000


def test_a_backfill_that_lost_something_of_5000_partitions_fits_into_a_node() -> None:
    lost = dict.fromkeys(range(5000), (10**12, 10**12 + 5))
    found = ByRecordTime(to_ms=9, append_time=False, lost=lost, lost_since_ms=10**12, lost_until_ms=10**12 + 1)
    assert len(dump(found)) < 200_000
    assert len(found.all_gaps) == 5000
    assert parse(ByRecordTime, dump(found)) == found


def test_gaps_of_a_backfill_of_before_are_read() -> None:
    gap = Gap(shard="0001-3", start=1, end=2, since_ms=3, until_ms=4)
    before = {"to_ms": 9, "append_time": False, "gaps": [asdict(gap)]}
    assert parse(ByRecordTime, json.dumps(before).encode()).all_gaps == (gap,)


def test_every_node_names_its_format() -> None:
    assert b'"format":1' in dump(Head())


def test_a_node_that_is_not_ours_is_refused() -> None:
    with pytest.raises(ValidationError):
        parse(Head, b'{"number": "many"}')


def test_the_lowest_watermark_is_that_of_the_shard_that_lags_most() -> None:
    def at(watermark_ms: int, *, completed: bool = False) -> ShardPosition:
        return ShardPosition(start=0, next=0, watermark_ms=watermark_ms, digest=None, completed=completed)

    shards = {Shard(1, 0): at(5), Shard(1, 1): at(3), Shard(1, 2): at(1, completed=True)}
    assert Positions(start_ms=0).with_shards(shards).lowest_watermark_ms == 3
    assert Positions().lowest_watermark_ms is None


def test_a_shift_that_is_archived_again_while_a_flag_that_names_it_is_decided_waits_for_the_next_flag() -> None:
    decided = Publication(revision=1, path="_tmp/flag", digest="", shifts=(12, 13))
    record = HourRecord(unflagged=(12, 13), publishing=decided)
    once = replace(record, unflagged=record.unflagged_with([12, 14]))
    assert once.unflagged == (12, 13, 12, 14)
    assert once.unflagged_with([12, 14]) == once.unflagged
    assert once.unflagged_after(decided) == (12, 14)
    assert HourRecord(unflagged=(12,)).unflagged_with([12, 13]) == (12, 13)
