"""Shifts shorter than an hour, and hours that are joined while they are still open."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.archive import HOUR, Rig, cut, decode, lines, new_rig
from tests.pipeline import FIRST, TASK, build, expected_lines, records
from tests.services import connections_of, visible_lines

from tidemark.drive.consume import consume_interval
from tidemark.ledger import paths
from tidemark.ledger.records import HourState, Positions, ShardPosition, dump
from tidemark.names import HOUR_MS, Interval, Shard
from tidemark.stack import Stack


def leave_open(rig: Rig) -> None:
    position = ShardPosition(start=0, next=30, watermark_ms=HOUR.start_ms + HOUR_MS // 2, digest=None)
    positions = Positions(start_ms=HOUR.start_ms, first_ms=HOUR.start_ms).with_shards({Shard(1, 0): position})
    with rig.ledger() as ledger:
        ledger.client.set(paths.positions(rig.stream.name), dump(positions))


@pytest.mark.parametrize(
    ("archive", "joins"),
    [
        ({"target_size": "1kB"}, False),
        ({"target_size": "1kB", "rollover": "99999d"}, True),
        ({"target_size": "1GB", "rollover": "99999d"}, False),
        ({"target_size": "1GB", "rollover": "15m"}, True),
    ],
)
def test_files_of_an_open_hour_are_joined_when_they_are_enough_or_waited_long_enough(
    stack: Stack, tmp_path: Path, archive: dict[str, str], joins: bool
) -> None:
    rig = new_rig(stack, tmp_path.as_uri(), archive=archive)
    first, second = lines(60), lines(60, 1000)
    rig.commit(1, {"0001-0": rig.boom(1, cut(first, 5))})
    leave_open(rig)
    assert rig.archive() == ([HOUR] if joins else [])
    assert rig.readable() == sorted(first)
    if joins:
        record = rig.record()
        assert (record.state, record.dirty, record.unflagged) == (HourState.OPEN, (), (1,))
    rig.commit(2, {"0001-0": rig.boom(2, cut(second, 5), first=60)})
    assert rig.archive() == [HOUR]
    assert rig.record().state is HourState.ARCHIVED
    assert sorted(line for path in rig.visible() for line in decode(rig.storage.read(path))) == sorted(first + second)


def test_an_hour_of_four_shifts_is_ready_after_the_last_of_them(stack: Stack, spark: SparkSession) -> None:
    pipeline = build(
        stack,
        spark,
        "hdfs",
        "/rollover",
        partitions=1,
        every="15m",
        archive={"target_size": "256MB", "rollover": "15m"},
    )
    pipeline.topic.send(records(FIRST, 40, partitions=1))
    quarter = HOUR_MS // 4
    for number in range(4):
        start = FIRST.start_ms + number * quarter
        interval = Interval(start, start + quarter)
        consume_interval(pipeline.stream, interval, connections_of(stack), TASK, lambda: spark)
        pipeline.archive()
        assert pipeline.publish() == ([f"{FIRST} 1"] if number == 3 else [])
    assert sorted(visible_lines(pipeline.storage)) == expected_lines(pipeline.topic)
    assert pipeline.ledger(lambda ledger: ledger.hour(FIRST).value.archives) == 1
