"""`tidemark check` on a real ZooKeeper, with nothing else."""

import json
from pathlib import Path

import pytest
from bench.board import fill, stream_of
from kazoo.client import KazooClient
from tests.commands import tidemark
from tests.services import unique

from tidemark.config import Stream
from tidemark.drive.services import now_ms
from tidemark.environment import ZOOKEEPER, variable_of
from tidemark.inspect.board import last_days
from tidemark.ledger import paths
from tidemark.names import HOUR_MS, Hour
from tidemark.stack import Stack


@pytest.fixture
def stream(client: KazooClient) -> Stream:
    """Ready from yesterday's first hour up to now."""
    stream = stream_of(unique("checked"))
    now = now_ms()
    fill(client, stream, last_days(now, 2), now)
    return stream


@pytest.fixture
def environment(stack: Stack, stream: Stream, tmp_path: Path) -> dict[str, str]:
    """ZooKeeper's connection and the configuration are all that there is."""
    file = tmp_path / "streams.yaml"
    settings = {"cluster": "main", "topic": stream.topic, "root": stream.root, "owner": "test"}
    file.write_text(json.dumps({"streams": {stream.name: settings, "paused": settings}}))
    connection = variable_of(ZOOKEEPER)
    return {connection: stack.environment()[connection], "TIDEMARK_STREAMS": str(file)}


def test_a_stream_that_is_ready_up_to_now_is_well(stream: Stream, environment: dict[str, str]) -> None:
    done = tidemark("check", stream.name, environment=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{stream.name}: well, newest ready hour ")


def test_an_hour_that_should_be_ready_is_named_before_all_that_is_well(
    stream: Stream, environment: dict[str, str], client: KazooClient
) -> None:
    held = Hour.of(now_ms() - 6 * HOUR_MS)
    client.delete(paths.hour(stream.name, held))
    done = tidemark("check", environment=environment)
    assert done.returncode == 1
    first, second = sorted(done.stdout.splitlines(), key=lambda line: line.startswith("paused"))
    assert f"hours that should be ready and are not: 1, the first {held}" in first
    assert f"tidemark why {stream.name} {held}" in first
    assert second.startswith("paused: nothing was ever planned")
    rows = json.loads(tidemark("check", stream.name, "--json", environment=environment).stdout)
    assert [(row["well"], row["held"]) for row in rows] == [(False, [str(held)])]


def test_a_zookeeper_that_is_away_is_3_and_a_wrong_name_2(environment: dict[str, str], unused_port: int) -> None:
    away = json.dumps({"host": "127.0.0.1", "port": unused_port})
    gone = tidemark("check", environment={**environment, variable_of(ZOOKEEPER): away})
    assert (gone.returncode, len(gone.stderr.splitlines())) == (3, 1)
    assert tidemark("check", "none", environment=environment).returncode == 2
