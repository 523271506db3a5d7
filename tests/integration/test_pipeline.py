"""The stages on real Kafka, ZooKeeper, HDFS and Spark, without Airflow."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import pytest
from pyspark.sql import SparkSession
from tests.services import KafkaTopic, Sent, connections_of, read_json, unique, visible_lines, walk

from tidemark.config import Stream
from tidemark.consume.commit import Committer
from tidemark.drive.archive import archive_stream
from tidemark.drive.consume import consume_interval
from tidemark.drive.plan import plan_interval
from tidemark.drive.publish import publish_stream
from tidemark.drive.services import now_ms
from tidemark.errors import DataLoss, Fenced, NotYet
from tidemark.ledger.records import HourState, ShiftRecord, ShiftState
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.names import HOUR_MS, Hour, Interval, Task
from tidemark.stack import Stack
from tidemark.storage import Storage, open_storage

FIRST = Hour.parse("2026-11-10T22")
TASK = Task(name="test", attempt=1)


Found = TypeVar("Found")


def interval_of(hour: Hour) -> Interval:
    return Interval(hour.start_ms, hour.end_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    stream: Stream
    topic: KafkaTopic
    stack: Stack
    spark: SparkSession
    storage: Storage

    def plan(self, hour: Hour) -> str:
        return plan_interval(self.stream, interval_of(hour), connections_of(self.stack), TASK)

    def consume(self, hour: Hour, task: Task = TASK) -> None:
        consume_interval(self.stream, interval_of(hour), connections_of(self.stack), task, lambda: self.spark)

    def archive(self) -> None:
        archive_stream(self.stream, connections_of(self.stack), TASK, lambda: self.spark)

    def publish(self) -> list[str]:
        flags = publish_stream(self.stream, connections_of(self.stack), TASK)
        return [f"{flag.subject} {flag.revision}" for flag in flags]

    def run(self, hour: Hour) -> list[str]:
        self.plan(hour)
        self.consume(hour)
        self.archive()
        return self.publish()

    def ledger(self, read: Callable[[StreamLedger], Found]) -> Found:
        with open_session(connections_of(self.stack)) as client:
            return read(StreamLedger(client, self.stream.name))


@pytest.fixture(params=["hdfs", "file"])
def pipeline(
    request: pytest.FixtureRequest,
    stack: Stack,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Pipeline:
    return build(stack, spark, request.param, str(tmp_path_factory.mktemp("root")))


@pytest.fixture
def hdfs_pipeline(stack: Stack, spark: SparkSession) -> Pipeline:
    return build(stack, spark, "hdfs", "/pipeline")


def build(stack: Stack, spark: SparkSession, scheme: str, folder: str, **settings: object) -> Pipeline:
    name = unique("pipeline")
    stream = Stream.model_validate(
        {"name": name, "cluster": "main", "topic": name, "root": f"{scheme}://{folder}/{name}", "owner": "test"}
        | {"compression": "fast", **settings}
    )
    return Pipeline(
        stream=stream,
        topic=KafkaTopic(stack, name, 3),
        stack=stack,
        spark=spark,
        storage=open_storage(stream.root, connections_of(stack)),
    )


def records(hour: Hour, count: int, partitions: int = 3) -> list[Sent]:
    step = HOUR_MS // count
    return [
        Sent(partition=n % partitions, time_ms=hour.start_ms + n * step, value=f"{hour} line {n}".encode())
        for n in range(count)
    ]


def expected_lines(topic: KafkaTopic) -> list[tuple[int, bytes]]:
    return sorted((when, value) for _, _, when, value in topic.read_all() if value is not None)


def _shift(ledger: StreamLedger, name: str) -> ShiftRecord:
    node = ledger.shift(name)
    assert node is not None
    return node.value


def test_every_record_of_kafka_is_in_the_files_exactly_once_and_the_flags_say_so(pipeline: Pipeline) -> None:
    second = Hour(FIRST.start_ms + HOUR_MS)
    pipeline.topic.send(records(FIRST, 500) + records(second, 300))
    assert pipeline.run(FIRST) == [f"{FIRST} 1"]
    assert pipeline.run(second) == [f"{second} 1"]
    assert sorted(visible_lines(pipeline.storage)) == expected_lines(pipeline.topic)
    flag = read_json(pipeline.storage, f"{FIRST.day}/22/_READY")
    assert flag["counts"] == {"lines": 500, "late": 0, "skewed": 0, "bad": 0}
    assert sum(file["lines"] for file in flag["files"]) == 500
    assert {shard["proof"] for shard in flag["shards"].values()} == {"end-offset"}


def test_the_same_interval_again_changes_nothing(pipeline: Pipeline) -> None:
    pipeline.topic.send(records(FIRST, 50))
    pipeline.run(FIRST)
    before = {path: (size, pipeline.storage.read(path)) for path, size in walk(pipeline.storage)}
    assert pipeline.run(FIRST) == []
    assert {path: (size, pipeline.storage.read(path)) for path, size in walk(pipeline.storage)} == before


def test_the_index_tiles_each_target_and_a_range_of_it_is_a_boom_file(hdfs_pipeline: Pipeline) -> None:
    pipeline = hdfs_pipeline
    pipeline.topic.send(records(FIRST, 90))
    pipeline.run(FIRST)
    index = pipeline.storage.read(f"{FIRST.day}/_index/22-0001.jsonl").splitlines()
    pieces = [json.loads(line) for line in index]
    assert [piece["shard"] for piece in pieces] == ["0001-0", "0001-1", "0001-2"]
    (target,) = {piece["destFile"] for piece in pieces}
    data = pipeline.storage.read(target)
    header = data[: pieces[0]["destFileStartOffset"]]
    for before, after in pairwise(pieces):
        assert before["destFileEndOffset"] == after["destFileStartOffset"]
    assert pieces[-1]["destFileEndOffset"] == len(data)
    piece = pieces[1]
    cut = header + data[piece["destFileStartOffset"] : piece["destFileEndOffset"]]
    pipeline.storage.create("cut/2026/piece.bm", cut)
    assert len(visible_lines(pipeline.storage, "cut")) == piece["lines"] == 30


def test_late_lines_make_revision_2_and_leave_revision_1_as_it_was(hdfs_pipeline: Pipeline) -> None:
    pipeline = hdfs_pipeline
    second = Hour(FIRST.start_ms + HOUR_MS)
    pipeline.topic.send(records(FIRST, 30))
    pipeline.run(FIRST)
    first_flag = pipeline.storage.read(f"{FIRST.day}/22/_READY")
    pipeline.topic.send([Sent(partition=0, time_ms=FIRST.start_ms + 5, value=b"late")])
    assert pipeline.run(second) == [f"{FIRST} 2", f"{second} 1"]
    assert pipeline.storage.read(f"{FIRST.day}/22/_READY") == first_flag
    revised = read_json(pipeline.storage, f"{FIRST.day}/22/_READY.2")
    assert revised["counts"]["lines"] == 31
    assert revised["counts"]["late"] == 1
    assert len(revised["changes"]["files"]) == 1
    empty = read_json(pipeline.storage, f"{second.day}/23/_READY")
    assert empty["empty"] is True
    assert sorted(visible_lines(pipeline.storage)) == expected_lines(pipeline.topic)


def test_lines_out_of_the_window_and_tombstones_are_counted_and_kept(hdfs_pipeline: Pipeline) -> None:
    pipeline = hdfs_pipeline
    year_2099 = 4_070_908_800_000
    pipeline.topic.send(
        [
            *records(FIRST, 6),
            Sent(partition=0, time_ms=year_2099, value=b"from 2099"),
            Sent(partition=1, time_ms=1000, value=b"from 1970"),
            Sent(partition=2, time_ms=FIRST.start_ms, value=None),
        ]
    )
    pipeline.run(FIRST)
    flag = read_json(pipeline.storage, f"{FIRST.day}/22/_READY")
    assert flag["counts"] == {"lines": 6, "late": 0, "skewed": 2, "bad": 0}
    assert {shard["watermark"] for shard in flag["shards"].values()} == {"2026-11-10T23:00:00Z"}
    assert len([path for path, _ in walk(pipeline.storage, "_skewed")]) == 2
    manifest = read_json(pipeline.storage, "_manifests/00000001-20261110T2200.json")
    assert sum(shard["tombstones"] for shard in manifest["shards"].values()) == 1
    assert all(shard["holes"] == 0 for shard in manifest["shards"].values())


def test_a_day_is_ready_when_all_24_hours_are_though_most_are_empty(hdfs_pipeline: Pipeline) -> None:
    pipeline = hdfs_pipeline
    hours = [Hour(Hour.parse("2026-11-09T00").start_ms + n * HOUR_MS) for n in range(24)]
    pipeline.topic.send(records(hours[5], 10))
    for hour in hours[:-1]:
        pipeline.consume(hour)
    pipeline.archive()
    assert len(pipeline.publish()) == 23
    assert pipeline.run(hours[-1]) == [f"{hours[-1]} 1", "2026-11-09 1"]
    day = read_json(pipeline.storage, "2026-11-09/_READY")
    assert day["counts"]["lines"] == 10
    assert len(day["hours"]) == 24


def test_hours_may_be_consumed_in_any_order(hdfs_pipeline: Pipeline) -> None:
    pipeline = hdfs_pipeline
    second = Hour(FIRST.start_ms + HOUR_MS)
    pipeline.topic.send(records(FIRST, 9) + records(second, 9))
    assert pipeline.run(second) == [f"{second} 1"]
    assert pipeline.run(FIRST) == [f"{FIRST} 1"]


def test_a_run_finishes_the_open_shift_of_another_before_its_own(hdfs_pipeline: Pipeline) -> None:
    pipeline = hdfs_pipeline
    second = Hour(FIRST.start_ms + HOUR_MS)
    pipeline.topic.send(records(FIRST, 9))
    pipeline.plan(FIRST)
    pipeline.topic.send(records(second, 9))
    assert pipeline.plan(second) == "20261110T2300"
    pipeline.consume(second)
    numbers = pipeline.ledger(
        lambda ledger: [_shift(ledger, name).number for name in ("20261110T2200", "20261110T2300")]
    )
    assert numbers == [1, 2]


def test_an_interval_is_not_planned_before_its_end_and_grace(hdfs_pipeline: Pipeline) -> None:
    now = Hour.of(now_ms())
    with pytest.raises(NotYet, match=r"wanted interval end \+ grace"):
        hdfs_pipeline.plan(now)


class Killed(Exception):
    """Stands for a driver that dies here; what it leaves is all that the next one finds."""


@pytest.mark.parametrize("step", ["_mark_pending", "_finish", "_move", "_commit_ledger"])
def test_a_driver_that_dies_while_committing_is_followed_by_one_that_ends_with_the_same_files(
    hdfs_pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    pipeline = hdfs_pipeline
    pipeline.topic.send(records(FIRST, 40))

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Committer, step, die)
        with pytest.raises(Killed):
            pipeline.consume(FIRST)
    assert visible_lines(pipeline.storage) == []
    pipeline.consume(FIRST, Task(name="test", attempt=2))
    pipeline.archive()
    pipeline.publish()
    assert sorted(visible_lines(pipeline.storage)) == expected_lines(pipeline.topic)
    assert list(walk(pipeline.storage, "_tmp")) == []


def test_a_driver_whose_lease_was_taken_cannot_commit(hdfs_pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = hdfs_pipeline
    pipeline.topic.send(records(FIRST, 40))
    commit = Committer._commit_once

    def be_overtaken(self: Committer, *arguments: object) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Committer, "_commit_once", commit)
            pipeline.consume(FIRST, Task(name="test", attempt=2))
        commit(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Committer, "_commit_once", be_overtaken)
    with pytest.raises(Fenced, match="the lease was taken by another worker"):
        pipeline.consume(FIRST)
    assert pipeline.ledger(lambda ledger: ledger.head().value.number) == 1
    pipeline.archive()
    pipeline.publish()
    assert sorted(visible_lines(pipeline.storage)) == expected_lines(pipeline.topic)


def test_a_quiet_partition_is_proven_like_a_busy_one(hdfs_pipeline: Pipeline) -> None:
    pipeline = hdfs_pipeline
    pipeline.topic.send([Sent(partition=0, time_ms=FIRST.start_ms, value=b"only one")])
    pipeline.run(FIRST)
    shards = pipeline.ledger(lambda ledger: ledger.positions().value.shards)
    assert {row.watermark_ms for row in shards.values()} == {FIRST.end_ms}
    assert pipeline.ledger(lambda ledger: ledger.hour(FIRST).value.state) is HourState.READY
    assert pipeline.ledger(lambda ledger: _shift(ledger, "20261110T2200").state) is ShiftState.COMMITTED


def test_a_backlog_is_taken_in_bites_by_one_run(stack: Stack, spark: SparkSession) -> None:
    pipeline = build(stack, spark, "hdfs", "/pipeline", max_records=40)
    pipeline.topic.send(records(FIRST, 90))
    assert pipeline.run(FIRST) == [f"{FIRST} 1"]
    manifests = [path for path, _ in walk(pipeline.storage, "_manifests") if path.endswith(".json")]
    assert [path.split("-")[-1] for path in manifests] == [
        "20261110T2200.json",
        "20261110T2200.2.json",
        "20261110T2200.3.json",
    ]
    assert sorted(visible_lines(pipeline.storage)) == expected_lines(pipeline.topic)


def test_records_that_expired_unread_are_an_error_by_default(hdfs_pipeline: Pipeline) -> None:
    pipeline = hdfs_pipeline
    pipeline.topic.send(records(FIRST, 30))
    pipeline.run(FIRST)
    pipeline.topic.send(records(FIRST, 30))
    pipeline.topic.expire_before(1, 15)
    with pytest.raises(DataLoss, match=r"0001-1: start 10 is gone, Kafka begins at 15 \(offset_reset: fail\)"):
        pipeline.plan(Hour(FIRST.end_ms))


def test_with_offset_reset_what_expired_is_a_gap_that_holds_its_hours(stack: Stack, spark: SparkSession) -> None:
    pipeline = build(stack, spark, "hdfs", "/pipeline", offset_reset="earliest")
    second, third = Hour(FIRST.end_ms), Hour(FIRST.end_ms + HOUR_MS)
    pipeline.topic.send(records(FIRST, 30))
    pipeline.run(FIRST)
    pipeline.topic.send(records(second, 30))
    pipeline.topic.expire_before(1, 15)
    assert pipeline.run(second) == []
    assert pipeline.run(third) == [f"{third} 1"]
    (gap,) = pipeline.ledger(lambda ledger: ledger.hour(second).value.gaps)
    assert (gap.shard, gap.start, gap.end) == ("0001-1", 10, 15)
    manifest = read_json(pipeline.storage, "_manifests/00000002-20261110T2300.json")
    assert [(gap["start"], gap["end"]) for gap in manifest["gaps"]] == [(10, 15)]


def test_a_planned_shift_whose_start_expired_is_planned_again_under_the_same_rule(
    stack: Stack, spark: SparkSession
) -> None:
    pipeline = build(stack, spark, "hdfs", "/pipeline", offset_reset="earliest")
    pipeline.topic.send(records(FIRST, 30))
    pipeline.plan(FIRST)
    pipeline.topic.expire_before(0, 4)
    pipeline.consume(FIRST)
    manifest = read_json(pipeline.storage, "_manifests/00000001-20261110T2200.json")
    assert manifest["shards"]["0001-0"]["start"] == 4
    assert manifest["shards"]["0001-0"]["records"] == 6
    assert [(gap["start"], gap["end"]) for gap in manifest["gaps"]] == [(0, 4)]


def test_a_stream_may_start_at_a_time(stack: Stack, spark: SparkSession) -> None:
    pipeline = build(stack, spark, "hdfs", "/pipeline", start="2026-11-10T22:30:00Z")
    pipeline.topic.send(records(FIRST, 60))
    pipeline.consume(FIRST)
    manifest = read_json(pipeline.storage, "_manifests/00000001-20261110T2200.json")
    assert sum(shard["records"] for shard in manifest["shards"].values()) == 30
    assert min(file["min_ms"] for file in manifest["files"]) == FIRST.start_ms + HOUR_MS // 2


def test_a_rerun_restores_a_lost_file_with_the_same_bytes_and_no_second_copy(hdfs_pipeline: Pipeline) -> None:
    pipeline = hdfs_pipeline
    pipeline.topic.send(records(FIRST, 60))
    pipeline.consume(FIRST)
    before = {path: pipeline.storage.read(path) for path, _ in walk(pipeline.storage)}
    lost = next(path for path in before if "_incoming" in path)
    pipeline.storage.delete(lost)
    pipeline.topic.send(records(FIRST, 60))
    pipeline.consume(FIRST)
    assert {path: pipeline.storage.read(path) for path, _ in walk(pipeline.storage)} == before


def test_a_rerun_takes_a_file_that_was_archived_as_there(hdfs_pipeline: Pipeline) -> None:
    pipeline = hdfs_pipeline
    pipeline.topic.send(records(FIRST, 60))
    pipeline.run(FIRST)
    before = {path: pipeline.storage.read(path) for path, _ in walk(pipeline.storage)}
    pipeline.consume(FIRST)
    assert {path: pipeline.storage.read(path) for path, _ in walk(pipeline.storage)} == before


def test_a_rerun_is_refused_when_kafka_no_longer_has_what_is_missing(hdfs_pipeline: Pipeline) -> None:
    pipeline = hdfs_pipeline
    pipeline.topic.send(records(FIRST, 60))
    pipeline.consume(FIRST)
    for path, _ in list(walk(pipeline.storage, FIRST.day)):
        pipeline.storage.delete(path)
    pipeline.topic.expire_before(0, 20)
    with pytest.raises(DataLoss, match=r"3 files are missing, .* and Kafka no longer has all of its records"):
        pipeline.consume(FIRST)
