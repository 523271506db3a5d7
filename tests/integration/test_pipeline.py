"""The stages on real Kafka, ZooKeeper, HDFS and Spark, without Airflow."""

import json
from base64 import b64decode
from itertools import pairwise

import pytest
from pyspark.sql import SparkSession
from tests.pipeline import FIRST, Pipeline, at, build, expected_lines, interval_of, records
from tests.services import Sent, lines_of, read_json, visible_lines, walk

from tidemark.consume.commit import Committer
from tidemark.drive import shifts
from tidemark.drive.services import now_ms
from tidemark.errors import DataLoss, Fenced, NotYet
from tidemark.ledger.records import HourState, ShiftRecord, ShiftState
from tidemark.ledger.stream import StreamLedger
from tidemark.names import HOUR_MS, Hour, Task
from tidemark.plan import planner
from tidemark.stack import Stack


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
    year_2099, year_10000 = 4_070_908_800_000, 253_402_300_800_000
    pipeline.topic.send(
        [
            *records(FIRST, 6),
            Sent(partition=0, time_ms=year_2099, value=b"from 2099"),
            Sent(partition=0, time_ms=year_10000, value=b"of no hour \xff"),
            Sent(partition=1, time_ms=1000, value=b"from 1970"),
            Sent(partition=2, time_ms=FIRST.start_ms, value=None),
        ]
    )
    pipeline.run(FIRST)
    flag = read_json(pipeline.storage, f"{FIRST.day}/22/_READY")
    assert flag["counts"] == {"lines": 6, "late": 0, "skewed": 2, "bad": 1}
    assert {shard["watermark"] for shard in flag["shards"].values()} == {"2026-11-10T23:00:00Z"}
    skewed = [line for path, _ in walk(pipeline.storage, "_skewed") for line in lines_of(pipeline.storage, path)]
    assert sorted(skewed) == [(1000, b"from 1970"), (year_2099, b"from 2099")]
    (bad,) = [read_json(pipeline.storage, path) for path, _ in walk(pipeline.storage, "_bad")]
    assert (bad["shard"], bad["offset"], bad["timestamp"]) == ("0001-0", 3, year_10000)
    assert b64decode(bad["value"]) == b"of no hour \xff"
    assert bad["reason"] == "its time has no hour between the years 1970 and 9999"
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


def test_a_driver_leaves_alone_what_a_later_holder_of_the_lease_wrote_for_the_same_shift(
    hdfs_pipeline: Pipeline,
) -> None:
    pipeline = hdfs_pipeline
    pipeline.topic.send(records(FIRST, 6))
    theirs = f"_tmp/shift-{pipeline.plan(FIRST)}/999999/1/file"
    pipeline.storage.create(theirs, b"of a later epoch")
    pipeline.consume(FIRST)
    assert [path for path, _ in walk(pipeline.storage, "_tmp")] == [theirs]


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


def test_a_large_partition_is_read_by_several_tasks_as_the_frozen_shift_says(
    hdfs_pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = hdfs_pipeline
    monkeypatch.setattr(planner, "SPLIT_RECORDS", 10)
    pipeline.topic.send(records(FIRST, 75))
    pipeline.plan(FIRST)
    monkeypatch.undo()
    pipeline.consume(FIRST)
    files = read_json(pipeline.storage, "_manifests/00000001-20261110T2200.json")["files"]
    assert [(file["first_offset"], file["last_offset"]) for file in files if file["shard"] == "0001-0"] == [
        (0, 7),
        (8, 15),
        (16, 24),
    ]
    pipeline.archive()
    assert sorted(visible_lines(pipeline.storage)) == expected_lines(pipeline.topic)


def test_partitions_that_were_added_in_place_are_found_by_the_next_plan(hdfs_pipeline: Pipeline) -> None:
    pipeline = hdfs_pipeline
    second = Hour(FIRST.end_ms)
    pipeline.topic.send(records(FIRST, 30))
    pipeline.run(FIRST)
    pipeline.topic.add_partitions(2)
    pipeline.topic.send(records(second, 50, partitions=5))
    assert pipeline.run(second) == [f"{second} 1"]
    assert sorted(visible_lines(pipeline.storage)) == expected_lines(pipeline.topic)


def test_of_transactions_what_was_committed_is_there_and_the_rest_is_counted_as_holes(hdfs_pipeline: Pipeline) -> None:
    pipeline = hdfs_pipeline
    for value, commit in ((b"committed", True), (b"aborted", False), (b"again", True)):
        sent = [Sent(partition=0, time_ms=FIRST.start_ms + n, value=value) for n in range(4)]
        pipeline.topic.send_in_transaction(sent, commit=commit)
    assert pipeline.run(FIRST) == [f"{FIRST} 1"]
    lines = sorted(visible_lines(pipeline.storage))
    assert lines == expected_lines(pipeline.topic)
    assert {message for _, message in lines} == {b"committed", b"again"}
    shard = read_json(pipeline.storage, "_manifests/00000001-20261110T2200.json")["shards"]["0001-0"]
    # Three markers, and four records that were taken back.
    assert (shard["end"], shard["records"], shard["holes"]) == (15, 8, 7)


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
    second, third, fourth = (Hour(FIRST.end_ms + n * HOUR_MS) for n in range(3))
    pipeline.topic.send(records(FIRST, 30))
    pipeline.run(FIRST)
    pipeline.topic.send(records(second, 30))
    pipeline.topic.expire_before(1, 15)
    # Asked in the third hour, Kafka does not tell when the lost records had come.
    with at(third.start_ms + 600_000):
        assert pipeline.run(second) == []
    assert pipeline.run(third) == []
    assert pipeline.run(fourth) == [f"{fourth} 1"]
    for (gap,) in pipeline.ledger(lambda ledger: [ledger.hour(hour).value.gaps for hour in (second, third)]):
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


def test_what_a_rerun_restored_is_archived_though_it_died_before_it_said_so(
    hdfs_pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = hdfs_pipeline
    pipeline.topic.send(records(FIRST, 60))
    pipeline.run(FIRST)
    for path in [path for path, _ in walk(pipeline.storage, FIRST.day) if path.endswith(".bm")]:
        pipeline.storage.delete(path)

    def die(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(StreamLedger, "add_dirty", die)
        with pytest.raises(RuntimeError, match="killed"):
            pipeline.consume(FIRST)
    pipeline.consume(FIRST)
    assert pipeline.ledger(lambda ledger: ledger.hour(FIRST)).value.dirty == (1,)
    pipeline.archive()
    assert sorted(visible_lines(pipeline.storage)) == expected_lines(pipeline.topic)
    pipeline.consume(FIRST)
    assert pipeline.ledger(lambda ledger: ledger.hour(FIRST)).value.dirty == ()


def test_a_rerun_is_refused_when_kafka_no_longer_has_what_is_missing(hdfs_pipeline: Pipeline) -> None:
    pipeline = hdfs_pipeline
    pipeline.topic.send(records(FIRST, 60))
    pipeline.consume(FIRST)
    for path, _ in list(walk(pipeline.storage, FIRST.day)):
        pipeline.storage.delete(path)
    pipeline.topic.expire_before(0, 20)
    with pytest.raises(DataLoss, match=r"3 files are missing, .* and Kafka no longer has all of its records"):
        pipeline.consume(FIRST)


def test_hours_older_than_the_stream_are_backfilled_by_record_time_and_become_ready_as_far_as_they_reach(
    stack: Stack, spark: SparkSession
) -> None:
    pipeline = build(stack, spark, "hdfs", "/pipeline", start="latest")
    first = Hour(Hour.of(now_ms()).start_ms - 2 * HOUR_MS)
    older, oldest = Hour(first.start_ms - HOUR_MS), Hour(first.start_ms - 2 * HOUR_MS)
    pipeline.topic.send([*records(oldest, 30), *records(older, 60), *records(first, 90)])
    assert pipeline.run(first) == []
    assert visible_lines(pipeline.storage) == []
    before = pipeline.ledger(lambda ledger: ledger.positions().value)
    assert before.start_ms is not None
    assert pipeline.run(oldest) == []
    ready = range(oldest.start_ms, Hour.of(before.start_ms).start_ms, HOUR_MS)
    assert pipeline.run(older) == [f"{Hour(start_ms)} 1" for start_ms in ready]

    assert sorted(visible_lines(pipeline.storage)) == expected_lines(pipeline.topic)
    assert pipeline.ledger(lambda ledger: ledger.positions().value.shards) == before.shards
    flag = read_json(pipeline.storage, f"{oldest.day}/{oldest.hh}/_READY")
    assert flag["counts"] == {"lines": 30, "late": 0, "skewed": 0, "bad": 0}
    assert {shard["proof"] for shard in flag["shards"].values()} == {"record-time"}

    files = {path: pipeline.storage.read(path) for path, _ in walk(pipeline.storage)}
    assert pipeline.run(oldest) == []
    assert {path: pipeline.storage.read(path) for path, _ in walk(pipeline.storage)} == files


def test_with_the_brokers_own_times_a_backfilled_hour_is_ready_at_once(stack: Stack, spark: SparkSession) -> None:
    pipeline = build(stack, spark, "hdfs", "/pipeline", start="latest")
    first = Hour(Hour.of(now_ms()).start_ms - 2 * HOUR_MS)
    oldest = Hour(first.start_ms - 5 * HOUR_MS)
    pipeline.topic.send(records(first, 9))
    pipeline.run(first)
    pipeline.topic.let_the_broker_set_times()
    assert pipeline.run(oldest) == [f"{oldest} 1"]


def test_old_shifts_lose_their_node_and_are_found_in_their_manifests(
    hdfs_pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = hdfs_pipeline
    monkeypatch.setattr(shifts, "KEPT", 10)
    hours = [Hour(FIRST.start_ms + n * HOUR_MS) for n in range(13)]
    pipeline.topic.send(records(FIRST, 30))
    for hour in hours:
        pipeline.consume(hour)
    names = pipeline.ledger(lambda ledger: [hour for hour in hours if ledger.shift(interval_of(hour).shift)])
    assert names == hours[3:]
    files = {path: pipeline.storage.read(path) for path, _ in walk(pipeline.storage)}
    pipeline.plan(FIRST)
    pipeline.consume(FIRST)
    assert pipeline.ledger(lambda ledger: ledger.head().value.number) == 13
    assert {path: pipeline.storage.read(path) for path, _ in walk(pipeline.storage)} == files
