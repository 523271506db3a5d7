"""`tidemark offsets` on real ZooKeeper and Kafka."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.commands import tidemark
from tests.services import KafkaTopic, Sent, connections_of, unique

from tidemark.config import Stream
from tidemark.drive.plan import plan_interval
from tidemark.ledger import paths
from tidemark.ledger.zookeeper import open_session
from tidemark.names import Hour, Interval, Task
from tidemark.stack import Stack

HOUR = Hour.parse("2026-11-10T22")


@pytest.fixture
def stream() -> Stream:
    name = unique("offsets")
    return Stream(name=name, cluster="main", topic=name, root=f"hdfs:///offsets/{name}", owner="test")


@pytest.fixture
def topic(stack: Stack, stream: Stream) -> KafkaTopic:
    topic = KafkaTopic(stack, stream.topic, 2)
    topic.send(Sent(partition=0, time_ms=HOUR.start_ms + n, value=b"line") for n in range(5))
    return topic


@pytest.fixture
def environment(stack: Stack, stream: Stream, tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "streams.yaml"
    settings = {"cluster": "main", "topic": stream.topic, "root": stream.root, "owner": "test"}
    file.write_text(json.dumps({"streams": {stream.name: settings}}))
    return {**stack.environment(), "TIDEMARK_STREAMS": str(file)}


def plan(stack: Stack, stream: Stream) -> None:
    plan_interval(stream, Interval(HOUR.start_ms, HOUR.end_ms), connections_of(stack), Task(name="plan", attempt=1))


def shown_offsets(environment: dict[str, str], stream: Stream) -> Any:
    done = tidemark("offsets", stream.name, "--json", environment=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_shard_has_next_end_lag_and_watermark(
    stack: Stack, stream: Stream, topic: KafkaTopic, environment: dict[str, str]
) -> None:
    plan(stack, stream)
    topic.send(Sent(partition=1, time_ms=HOUR.end_ms, value=b"later") for _ in range(3))
    shown = shown_offsets(environment, stream)
    assert (shown["stream"], shown["open"], shown["number"], shown["lag"]) == (stream.name, "20261110T2200", 1, 8)
    rows = [{name: row[name] for name in ("shard", "topic", "next", "end", "lag", "cursor")} for row in shown["shards"]]
    assert rows == [
        {"shard": "0001-0", "topic": stream.topic, "next": 0, "end": 5, "lag": 5, "cursor": [1, -1]},
        {"shard": "0001-1", "topic": stream.topic, "next": 0, "end": 3, "lag": 3, "cursor": [1, -1]},
    ]
    assert {row["completed"] for row in shown["shards"]} == {False}
    assert all(row["watermark"].endswith("Z") for row in shown["shards"])
    assert (shown["lease"]["owner"], shown["lease"]["task"], shown["lease"]["try"]) == (None, "plan", 1)
    assert (shown["lease"]["epoch"], shown["lease"]["held"]) == (1, False)


def test_a_partition_that_no_plan_has_seen_has_no_next(
    stack: Stack, stream: Stream, topic: KafkaTopic, environment: dict[str, str]
) -> None:
    plan(stack, stream)
    topic.add_partitions(1)
    added = shown_offsets(environment, stream)["shards"][2]
    assert (added["shard"], added["next"], added["lag"], added["watermark"]) == ("0001-2", None, 0, None)
    assert added["cursor"] is None


@pytest.mark.usefixtures("topic")
def test_people_get_a_table(stack: Stack, stream: Stream, environment: dict[str, str]) -> None:
    plan(stack, stream)
    done = tidemark("offsets", stream.name, environment={**environment, "COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split()[:5] == ["0001-0", "0", "5", "5", "0001:-1"]
    assert "20261110T2200 open, 1 planned" in done.stdout


def test_a_stream_that_was_never_planned_is_told_and_gets_no_nodes(
    stack: Stack, stream: Stream, environment: dict[str, str]
) -> None:
    done = tidemark("offsets", stream.name, environment=environment)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"tidemark: Cannot show the offsets of {stream.name}: it was never planned, and so has no positions yet"
    ]
    with open_session(connections_of(stack)) as client:
        assert client.exists(paths.stream(stream.name)) is None


@pytest.mark.parametrize("name", ["nobody-knows-it", "../streams"])
def test_a_name_that_is_no_stream_is_wrong_use(environment: dict[str, str], name: str) -> None:
    done = tidemark("offsets", name, environment=environment)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_the_command_alone_is_its_help(environment: dict[str, str]) -> None:
    done = tidemark("offsets", environment=environment)
    assert "tidemark offsets STREAM" in done.stdout + done.stderr
