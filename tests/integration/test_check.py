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
    """Ready from an hour ten days ago up to now."""
    stream = stream_of(unique("checked"))
    now = now_ms()
    fill(client, stream, last_days(now, 10), now)
    return stream


@pytest.fixture
def environment(stack: Stack, stream: Stream, tmp_path: Path) -> dict[str, str]:
    """ZooKeeper's connection and the configuration are all that there is."""
    file = tmp_path / "streams.yaml"
    settings = {"cluster": "main", "topic": stream.topic, "root": stream.root, "owner": "test"}
    paused = {**settings, "root": f"{stream.root}-paused"}
    file.write_text(json.dumps({"streams": {stream.name: settings, "paused": paused}}))
    connection = variable_of(ZOOKEEPER)
    return {connection: stack.environment()[connection], "TIDEMARK_STREAMS": str(file)}


def test_a_stream_that_is_ready_up_to_now_is_well(stream: Stream, environment: dict[str, str]) -> None:
    done = tidemark("check", stream.name, environment=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{stream.name}: well, newest ready hour ")


@pytest.mark.parametrize("hours_ago", [6, 120])
def test_an_hour_that_should_be_ready_is_named_however_old_and_before_all_that_is_well(
    hours_ago: int, stream: Stream, environment: dict[str, str], client: KazooClient
) -> None:
    now = now_ms()
    held = Hour.of(now - hours_ago * HOUR_MS)
    client.delete(paths.hour(stream.name, held))
    if held.day != Hour.of(now).day:
        # The node of a day comes with its last hour.
        client.delete(paths.day(stream.name, held.day))
    done = tidemark("check", environment=environment)
    assert done.returncode == 1
    first, second = sorted(done.stdout.splitlines(), key=lambda line: line.startswith("paused"))
    assert f"hours that should be ready and are not: 1, the first {held}" in first
    assert f"tidemark why {stream.name} {held}" in first
    assert second.startswith("paused: nothing was ever planned")
    rows = json.loads(tidemark("check", stream.name, "--json", environment=environment).stdout)
    assert [(row["well"], row["held"]) for row in rows] == [(False, [str(held)])]
    assert rows[0]["newest_ready"] == str(Hour.of(now - HOUR_MS))


def test_a_stream_that_stopped_long_ago_still_has_its_newest_ready_hour(
    stream: Stream, environment: dict[str, str], client: KazooClient
) -> None:
    """At the end of a day, so that all that is flagged lies in finished ones."""
    now = now_ms()
    for day in last_days(now, 4):
        client.delete(paths.hours_of(stream.name, day), recursive=True)
        client.delete(paths.day(stream.name, day), recursive=True)
    [row] = json.loads(tidemark("check", stream.name, "--json", environment=environment).stdout)
    assert row["newest_ready"] == f"{last_days(now, 5)[-1]}T23"
    assert row["held"][0] == f"{last_days(now, 4)[-1]}T00"


def test_a_zookeeper_that_is_away_is_3_and_a_wrong_name_2(environment: dict[str, str], unused_port: int) -> None:
    away = json.dumps({"host": "127.0.0.1", "port": unused_port})
    gone = tidemark("check", environment={**environment, variable_of(ZOOKEEPER): away})
    assert (gone.returncode, len(gone.stderr.splitlines())) == (3, 1)
    assert tidemark("check", "none", environment=environment).returncode == 2
