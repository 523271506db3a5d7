"""`tidemark offsets set`: an operator gives records up, on real ZooKeeper, Kafka and HDFS."""

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from pyspark.sql import SparkSession
from tests.commands import tidemark
from tests.pipeline import FIRST, Pipeline, build, expected_lines, records
from tests.services import Sent, connections_of, read_json, visible_lines

from tidemark.drive import acts
from tidemark.drive.acts import move_shard
from tidemark.errors import DataLoss
from tidemark.names import Hour, Shard, Task
from tidemark.stack import Stack

SECOND = Hour(FIRST.end_ms)
ZERO, ONE = Shard(1, 0), Shard(1, 1)


@pytest.fixture
def pipeline(stack: Stack, spark: SparkSession) -> Pipeline:
    return build(stack, spark, "hdfs", "/moves")


class Commands:
    """The command line, as an operator of this one stream has it."""

    def __init__(self, pipeline: Pipeline, folder: Path) -> None:
        stream = pipeline.stream
        file = folder / "streams.yaml"
        settings = {"cluster": "main", "topic": stream.topic, "root": stream.root, "owner": "test"}
        file.write_text(json.dumps({"streams": {stream.name: settings}}))
        self._stream = stream.name
        self._environment = {**pipeline.stack.environment(), "TIDEMARK_STREAMS": str(file)}

    def set(self, *arguments: str) -> CompletedProcess[str]:
        return tidemark("offsets", "set", self._stream, *arguments, environment=self._environment)


@pytest.fixture
def commands(pipeline: Pipeline, tmp_path: Path) -> Commands:
    return Commands(pipeline, tmp_path)


def next_offsets(pipeline: Pipeline) -> list[int]:
    positions = pipeline.ledger(lambda ledger: ledger.positions().value.shards)
    return [positions[shard].next for shard in sorted(positions)]


def test_what_is_given_up_is_a_gap_on_record_and_the_stream_goes_on_behind_it(
    pipeline: Pipeline, commands: Commands
) -> None:
    pipeline.topic.send(records(FIRST, 30))
    pipeline.run(FIRST)
    pipeline.topic.send(records(SECOND, 30))
    done = commands.set("0001-1", "14", "--yes")
    assert done.returncode == 0, done.stderr
    assert "0001-1 moves from 10 to 14" in done.stdout
    assert "Given up: 4 offsets, 4 of them still in Kafka" in done.stdout
    assert next_offsets(pipeline) == [10, 14, 10]

    assert pipeline.run(SECOND) == []
    left_out = {value for p, offset, _, value in pipeline.topic.read_all() if p == 1 and 10 <= offset < 14}
    wanted = [line for line in expected_lines(pipeline.topic) if line[1] not in left_out]
    assert sorted(visible_lines(pipeline.storage)) == wanted
    (gap,) = pipeline.ledger(lambda ledger: ledger.hour(SECOND).value.gaps)
    assert (gap.shard, gap.start, gap.end) == ("0001-1", 10, 14)
    act = read_json(pipeline.storage, "_manifests/00000002-move-00000002.json")
    assert act["gaps"][0]["end"] == 14


def test_a_move_back_is_refused_with_the_word_how_to_read_again(pipeline: Pipeline, commands: Commands) -> None:
    pipeline.topic.send(records(FIRST, 30))
    pipeline.consume(FIRST)
    done = commands.set("0001-1", "3", "--yes")
    assert done.returncode == 2
    assert "0001-1 back from 10 to 3: it never goes back" in done.stderr
    assert "airflow backfill create --reprocess-behavior completed" in done.stderr
    assert next_offsets(pipeline) == [10, 10, 10]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("0001-1", "11", "--yes"), "Kafka ends at 10"),
        (("0001-1", "10", "--yes"), "it is there already"),
        (("0001-9", "10", "--yes"), "no plan has seen such a shard"),
        (("1", "10", "--yes"), "wanted a timeline and a partition such as 0001-3"),
    ],
)
def test_a_move_to_nowhere_is_wrong_use(
    pipeline: Pipeline, commands: Commands, arguments: tuple[str, ...], wanted: str
) -> None:
    pipeline.topic.send(records(FIRST, 30))
    pipeline.consume(FIRST)
    done = commands.set(*arguments)
    assert done.returncode == 2
    assert wanted in done.stderr


def test_without_an_answer_nothing_is_changed(pipeline: Pipeline, commands: Commands) -> None:
    pipeline.topic.send(records(FIRST, 30))
    pipeline.plan(FIRST)
    done = commands.set("0001-1", "4")
    assert (done.returncode, next_offsets(pipeline)) == (2, [0, 0, 0])
    assert "say --yes" in done.stderr


def test_a_planned_shift_gives_way_and_is_planned_again_from_the_new_position(pipeline: Pipeline) -> None:
    pipeline.topic.send(records(FIRST, 30))
    pipeline.plan(FIRST)
    task = Task(name="operator", attempt=1)
    assert move_shard(pipeline.stream, ZERO, 4, connections_of(pipeline.stack), task) == "move-00000001"
    pipeline.consume(FIRST)
    manifest = read_json(pipeline.storage, "_manifests/00000002-20261110T2200.json")
    assert (manifest["shards"]["0001-0"]["start"], manifest["shards"]["0001-0"]["records"]) == (4, 6)
    act = read_json(pipeline.storage, "_manifests/00000001-move-00000001.json")
    assert [(gap["start"], gap["end"]) for gap in act["gaps"]] == [(0, 4)]


def test_an_act_whose_command_died_is_finished_by_the_next_run(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.topic.send(records(FIRST, 30))
    pipeline.consume(FIRST)
    pipeline.topic.send(records(SECOND, 30))

    def die(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(acts, "finish_shift", die)
        with pytest.raises(RuntimeError, match="killed"):
            move_shard(pipeline.stream, ZERO, 12, connections_of(pipeline.stack), Task(name="operator", attempt=1))
    assert pipeline.ledger(lambda ledger: ledger.head().value.open) == "move-00000002"
    pipeline.consume(SECOND)
    assert next_offsets(pipeline) == [20, 20, 20]
    assert read_json(pipeline.storage, "_manifests/00000003-20261110T2300.json")["shards"]["0001-0"]["start"] == 12


def test_a_topic_that_was_made_again_is_taken_when_every_shard_is_confirmed(pipeline: Pipeline) -> None:
    # Nothing in the last one: its new log begins where the old one would have gone on.
    pipeline.topic.send(Sent(partition=n % 2, time_ms=FIRST.start_ms, value=b"old") for n in range(4))
    pipeline.consume(FIRST)
    pipeline.topic.make_again()
    pipeline.topic.send(Sent(partition=n % 3, time_ms=SECOND.start_ms, value=b"new") for n in range(15))
    with pytest.raises(DataLoss, match="it was deleted and made again"):
        pipeline.consume(SECOND)
    connections, task = connections_of(pipeline.stack), Task(name="operator", attempt=1)
    move_shard(pipeline.stream, ZERO, 2, connections, task)
    with pytest.raises(DataLoss, match="0001-1: its topic was made again, and it was not confirmed"):
        pipeline.consume(SECOND)
    move_shard(pipeline.stream, ONE, 4, connections, task)
    with pytest.raises(DataLoss, match="0001-2: its topic was made again, and it was not confirmed"):
        pipeline.consume(SECOND)
    move_shard(pipeline.stream, Shard(1, 2), 0, connections, task)
    pipeline.consume(SECOND)
    assert next_offsets(pipeline) == [5, 5, 5]
    held = pipeline.ledger(lambda ledger: ledger.hour(SECOND).value.gaps)
    assert [(gap.shard, gap.start, gap.end) for gap in held] == [
        ("0001-0", 2, 2),
        ("0001-1", 2, 4),
        ("0001-2", 0, 0),
    ]
