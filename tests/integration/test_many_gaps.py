"""Losses of many shards over many hours, committed on a real ZooKeeper: what fits into no single transaction."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.services import connections_of, unique

from tidemark.config import Stream
from tidemark.consume.commit import HOURS_AT_ONCE, Committer, build_manifest
from tidemark.consume.touch import MOST_GAPS
from tidemark.drive.services import Services, services
from tidemark.ledger import paths
from tidemark.ledger.lease import StreamLease
from tidemark.ledger.records import (
    Head,
    HourRecord,
    Positions,
    Proof,
    ShardPosition,
    Shift,
    ShiftRange,
    ShiftRecord,
    ShiftState,
    Window,
)
from tidemark.ledger.stream import StreamLedger
from tidemark.manifest import Manifest
from tidemark.names import HOUR_MS, Hour, Shard, Task
from tidemark.stack import Stack

FIRST = Hour.parse("2026-11-10T22")
HOURS = [Hour(FIRST.start_ms + n * HOUR_MS) for n in range(192)]
SHARDS = [Shard(1, partition) for partition in range(60)]


class Killed(Exception):
    pass


@pytest.fixture
def around(stack: Stack, tmp_path: Path) -> Iterator[Services]:
    name = unique("gaps")
    settings = {"name": name, "cluster": "main", "topic": name, "root": f"file://{tmp_path}", "owner": "test"}
    with services(Stream.model_validate(settings), connections_of(stack), Task(name="test", attempt=1)) as found:
        found.ledger.prepare()
        yield found


def freeze_loss(ledger: StreamLedger, number: int) -> Shift:
    """Of a stream that was down for eight days: what every shard was to read next is gone."""
    lost = {shard: ShiftRange(lost_from=5, start=10**12, end=10**12, proof=Proof.END_OFFSET) for shard in SHARDS}
    shift = Shift(
        id=f"20261110T2200.{number}",
        number=number,
        start_ms=FIRST.start_ms,
        end_ms=FIRST.end_ms,
        planned_ms=HOURS[-1].end_ms,
        timelines_version=0,
        window=Window(past_ms=0, future_ms=HOURS[-1].end_ms),
        timestamp="kafka",
        compression="small",
        ranges=Shift.columns(lost),
    )
    position = ShardPosition(start=0, next=5, watermark_ms=FIRST.start_ms, digest="0123456789abcdef")
    positions = Positions(start_ms=0, first_ms=0).with_shards(dict.fromkeys(SHARDS, position))
    transaction = ledger.begin("test")
    transaction.put(paths.positions(ledger.stream), positions, version=ledger.positions().version)
    transaction.put(paths.head(ledger.stream), Head(number=number, open=shift.id), version=ledger.head().version)
    record = ShiftRecord(number=number, state=ShiftState.PLANNED, shift=shift)
    transaction.put(paths.shift(ledger.stream, shift.id), record, version=-1)
    transaction.commit()
    return shift


def committer(around: Services, lease: StreamLease, shift: Shift) -> Committer:
    return Committer(
        stream=around.stream.name, shift=shift, ledger=around.ledger, storage=around.storage(), lease=lease
    )


def commit(around: Services, number: int) -> None:
    shift = freeze_loss(around.ledger, number)
    with around.lease().take(wait_s=5) as lease:
        committer(around, lease, shift).commit(build_manifest(around.stream.name, shift, [], around.ledger), [])


def recover(around: Services) -> bool:
    opened = around.ledger.head().value.open
    assert opened is not None
    node = around.ledger.shift(opened)
    assert node is not None
    assert node.value.shift is not None
    with around.lease().take(wait_s=5) as lease:
        return committer(around, lease, node.value.shift).recover()


def held(around: Services) -> dict[Hour, HourRecord]:
    return {hour: node.value for hour, node in around.ledger.hours().items()}


def test_a_loss_of_many_shards_over_eight_days_is_committed_and_a_row_of_each_hour_tells_it(around: Services) -> None:
    commit(around, 1)
    assert around.ledger.head().value.open is None
    found = held(around)
    assert sorted(found) == HOURS
    for record in found.values():
        (gap,) = record.gaps
        assert (gap.shard, gap.start, gap.end, gap.shift, gap.more) == ("0001-0", 5, 10**12, 1, 59)


def test_hours_of_a_commit_that_died_half_way_are_held_once(around: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    hold, calls = Committer._hold_once, iter([True, False])

    def hold_one_batch(self: Committer, hours: Sequence[Hour], manifest: Manifest) -> None:
        if not next(calls):
            raise Killed
        hold(self, hours, manifest)

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Committer, "_hold_once", hold_one_batch)
        with pytest.raises(Killed):
            commit(around, 1)
    assert sorted(held(around)) == HOURS[:HOURS_AT_ONCE]
    with monkeypatch.context() as patched:
        patched.setattr(Committer, "_commit_once", die)
        with pytest.raises(Killed):
            recover(around)
    assert sorted(held(around)) == HOURS
    assert recover(around)
    assert around.ledger.head().value.open is None
    assert [(len(record.gaps), record.gaps[0].more) for record in held(around).values()] == [(1, 59)] * len(HOURS)


def test_a_stream_that_loses_records_with_every_run_does_not_make_its_hours_grow(around: Services) -> None:
    for number in range(1, 4):
        commit(around, number)
    assert {record.gaps[0].more for record in held(around).values()} == {3 * len(SHARDS) - 1}
    assert max(len(record.gaps) for record in held(around).values()) == 1 <= MOST_GAPS
