"""`tidemark flags` and `tidemark why` on real ZooKeeper, Kafka and HDFS."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import jsonschema
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from tests.commands import tidemark
from tests.pipeline import FIRST, TASK, Pipeline, at, build, records
from tests.services import KafkaTopic, Sent, connections_of, read_json, unique

from tidemark.archive.hours import HourArchiver
from tidemark.drive.acts import look_at_switch, switch_timeline
from tidemark.drive.consume import consume_interval
from tidemark.environment import repository_folder
from tidemark.errors import TidemarkError
from tidemark.names import HOUR_MS, Hour, Interval, hours_of_day
from tidemark.stack import Stack

SECOND = Hour(FIRST.end_ms)
Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def pipeline(stack: Stack, spark: SparkSession) -> Pipeline:
    return build(stack, spark, "hdfs", "/flags", offset_reset="earliest")


@pytest.fixture
def run(pipeline: Pipeline, tmp_path: Path) -> Run:
    return commands_of(pipeline, tmp_path)


def commands_of(pipeline: Pipeline, folder: Path) -> Run:
    """The command line, as an operator of this one stream has it."""
    stream = pipeline.stream
    file = folder / "streams.yaml"
    settings = {
        "cluster": "main",
        "topic": stream.topic,
        "root": stream.root,
        "owner": "test",
        "timestamp": stream.timestamp,
    }
    file.write_text(json.dumps({"streams": {stream.name: settings}}))
    environment = {**pipeline.stack.environment(), "TIDEMARK_STREAMS": str(file)}
    return lambda *arguments: tidemark(*arguments, environment=environment)


def leave_a_gap(pipeline: Pipeline) -> None:
    """Five records of a shard that expired unread: of the second hour, or of the third, in which that was found."""
    pipeline.topic.send(records(FIRST, 30))
    pipeline.run(FIRST)
    pipeline.topic.send(records(SECOND, 30))
    pipeline.topic.expire_before(1, 15)
    with at(SECOND.end_ms + 600_000):
        assert pipeline.run(SECOND) == []


def test_an_hour_with_a_gap_is_published_when_an_operator_accepts_it_and_its_flag_says_so(
    pipeline: Pipeline, run: Run
) -> None:
    leave_a_gap(pipeline)
    name = pipeline.stream.name
    held = run("why", name, str(SECOND))
    assert held.returncode == 1
    assert "gap: offsets [10, 15) of shard 0001-1 are lost" in held.stdout
    assert "tidemark flags accept" in held.stdout

    done = run("flags", "accept", name, str(SECOND), "--reason", "the broker's disk broke", "--yes")
    assert done.returncode == 0, done.stderr
    assert pipeline.publish() == [f"{SECOND} 1"]
    flag = read_json(pipeline.storage, f"{SECOND.day}/{SECOND.hh}/_READY")
    jsonschema.validate(flag, json.loads((repository_folder() / "docs" / "flag.schema.json").read_text()))
    (gap,) = flag["gaps"]
    assert (gap["start"], gap["end"], gap["accepted"]) == (10, 15, "the broker's disk broke")
    act = read_json(pipeline.storage, "_manifests/00000003-accept-00000003.json")
    assert act["shift"]["acceptance"] == {"hour": str(SECOND), "reason": "the broker's disk broke", "files": []}

    proven = run("why", name, str(SECOND))
    assert proven.returncode == 0, proven.stdout
    assert "ready, revision 1" in proven.stdout
    assert "accepted: the broker's disk broke" in proven.stdout


def test_an_hour_that_is_held_does_not_hold_the_next_one(pipeline: Pipeline) -> None:
    leave_a_gap(pipeline)
    third, fourth = Hour(SECOND.end_ms), Hour(SECOND.end_ms + HOUR_MS)
    assert pipeline.run(third) == []
    pipeline.topic.send(records(fourth, 30))
    assert pipeline.run(fourth) == [f"{fourth} 1"]


def test_an_hour_without_a_gap_cannot_be_accepted(pipeline: Pipeline, run: Run) -> None:
    pipeline.topic.send(records(FIRST, 30))
    pipeline.run(FIRST)
    done = run("flags", "accept", pipeline.stream.name, str(FIRST), "--reason", "why not", "--yes")
    assert (done.returncode, "no gap holds it" in done.stderr) == (2, True)


def test_the_flags_of_a_day_are_a_table_and_json(pipeline: Pipeline, run: Run) -> None:
    pipeline.topic.send(records(FIRST, 30))
    pipeline.run(FIRST)
    name = pipeline.stream.name
    rows = json.loads(run("flags", name, FIRST.day, "--json").stdout)
    assert len(rows) == 24
    ready = [row for row in rows if row["revision"]]
    assert [(row["hour"], row["revision"], row["lines"], row["files"]) for row in ready] == [(str(FIRST), 1, 30, 1)]
    assert "before the stream's first whole hour" in rows[0]["reasons"][0]
    assert str(FIRST) in run("flags", name, FIRST.day).stdout


def test_why_names_the_lag_and_that_nobody_works(pipeline: Pipeline, run: Run) -> None:
    pipeline.topic.send(records(FIRST, 30))
    pipeline.run(FIRST)
    pipeline.topic.send(records(SECOND, 30))
    pipeline.plan(SECOND)
    done = run("why", pipeline.stream.name, str(SECOND), "--json")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert {reason["cause"] for reason in answer["reasons"]} == {"lagging"}
    assert "shard 0001-0: next 10, Kafka's end 20, lag 10 records" in answer["notes"]
    assert any(note.startswith("shift 20261110T2300 was planned at") for note in answer["notes"])
    assert "no job works on the stream" in answer["notes"]


def test_why_names_a_transaction_that_hangs(stack: Stack, spark: SparkSession, tmp_path: Path) -> None:
    # A plan waits for the grace that transactions end.
    pipeline = build(stack, spark, "hdfs", "/flags", grace="3s", max_clock_skew="2s")
    run = commands_of(pipeline, tmp_path)
    settings = dict(connections_of(pipeline.stack)("kafka_main").extra)
    producer = Producer({**settings, "transactional.id": unique("hanging")})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(pipeline.topic.name, b"in a transaction", partition=0, timestamp=FIRST.start_ms)
    assert producer.flush(30) == 0
    pipeline.run(FIRST)
    done = run("why", pipeline.stream.name, str(FIRST))
    assert "shard 0001-0: a transaction is open from offset 0 on, Kafka's end is 1" in done.stdout
    producer.abort_transaction(30)


def test_why_knows_of_an_archive_that_failed(pipeline: Pipeline, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise TidemarkError("the disk is full")

    pipeline.topic.send(records(FIRST, 30))
    pipeline.consume(FIRST)
    with monkeypatch.context() as patched:
        patched.setattr(HourArchiver, "_fill", fail)
        with pytest.raises(TidemarkError, match="the disk is full"):
            pipeline.archive()
    assert pipeline.publish() == []
    done = run("why", pipeline.stream.name, str(FIRST))
    assert "lines of shift number 1 are committed but not archived" in done.stdout
    assert "its archive number 1 was begun and is not finished; held by nobody" in done.stdout


def test_why_knows_of_a_switch_that_is_under_way(pipeline: Pipeline, run: Run) -> None:
    pipeline.topic.send(records(FIRST, 30))
    pipeline.run(FIRST)
    pipeline.topic.send(records(SECOND, 30))
    target = KafkaTopic(pipeline.stack, unique("target"), 3)
    outlook = look_at_switch(pipeline.stream, "main", target.name, pipeline.connections)
    switch_timeline(pipeline.stream, outlook, pipeline.connections, TASK, stable_s=0.0)
    done = run("why", pipeline.stream.name, str(SECOND))
    under_way = f"a switch away from timeline 1 (main/{pipeline.topic.name}) is under way: 3 of its shards are not read"
    assert under_way in done.stdout


def test_why_of_a_day_names_the_hours_that_it_lacks(pipeline: Pipeline, run: Run) -> None:
    pipeline.topic.send([Sent(partition=0, time_ms=FIRST.start_ms, value=b"line")])
    pipeline.run(FIRST)
    done = run("why", pipeline.stream.name, FIRST.day)
    assert done.returncode == 1
    assert "not ready: 23 of its hours are not" in done.stdout


@pytest.mark.parametrize("subject", ["2026-13-01", "2026-11-15T25", "yesterday"])
def test_a_wrong_hour_or_day_is_wrong_use(pipeline: Pipeline, run: Run, subject: str) -> None:
    done = run("why", pipeline.stream.name, subject)
    assert done.returncode == 2
    assert "wanted UTC, such as" in done.stderr


@pytest.mark.parametrize("timestamp", ["kafka", "message"])
def test_verify_counts_files_and_kafka_again(stack: Stack, spark: SparkSession, tmp_path: Path, timestamp: str) -> None:
    pipeline = build(stack, spark, "hdfs", "/flags", timestamp=timestamp)
    pipeline.topic.send([*records(FIRST, 30), Sent(partition=2, time_ms=FIRST.start_ms, value=None)])
    pipeline.run(FIRST)
    run = commands_of(pipeline, tmp_path)
    done = run("verify", pipeline.stream.name, str(FIRST))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok") == 5
    assert "Kafka has 10 records of the hour in [0, 11), the flag counts 10 lines" in done.stdout


def test_verify_names_a_file_that_was_changed_and_says_what_kafka_cannot_tell_any_more(
    pipeline: Pipeline, run: Run
) -> None:
    pipeline.topic.send(records(FIRST, 30))
    pipeline.run(FIRST)
    (file,) = read_json(pipeline.storage, f"{FIRST.day}/{FIRST.hh}/_READY")["files"]
    data = bytearray(pipeline.storage.read(file["path"]))
    data[-20] ^= 1
    pipeline.storage.delete(file["path"])
    pipeline.storage.create(file["path"], bytes(data))
    pipeline.topic.expire_before(0, 3)
    done = run("verify", pipeline.stream.name, str(FIRST))
    assert done.returncode == 1
    assert f"DIFFERS {file['path']}" in done.stdout
    assert "shard 0001-0: Kafka begins at 3 and may have lost records of the hour" in done.stdout


def test_verify_of_a_day_counts_its_flag_and_each_hour_again(pipeline: Pipeline, run: Run) -> None:
    hours = hours_of_day("2026-11-09")
    pipeline.topic.send(records(hours[5], 30))
    day = Interval(hours[0].start_ms, hours[-1].end_ms)
    consume_interval(pipeline.stream, day, pipeline.connections, TASK, lambda: pipeline.spark)
    pipeline.archive()
    assert pipeline.publish()[-1] == "2026-11-09 1"
    done = run("verify", pipeline.stream.name, "2026-11-09")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "its hours have 30 lines, it counts 30" in done.stdout
    assert done.stdout.count("Kafka has 10 records of the hour") == 3

    flag = read_json(pipeline.storage, "2026-11-09/_READY")
    flag["counts"]["lines"] += 1
    pipeline.storage.delete("2026-11-09/_READY")
    pipeline.storage.create("2026-11-09/_READY", json.dumps(flag).encode())
    done = run("verify", pipeline.stream.name, "2026-11-09")
    assert (done.returncode, done.stdout.count("DIFFERS")) == (1, 1)
    assert "its hours have 30 lines, it counts 31" in done.stdout


def test_verify_of_an_hour_without_a_flag_says_so(pipeline: Pipeline, run: Run) -> None:
    done = run("verify", pipeline.stream.name, str(FIRST))
    assert (done.returncode, "not ready; ask `tidemark why`" in done.stderr) == (1, True)
