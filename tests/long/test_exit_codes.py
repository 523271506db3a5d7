"""A service that is away is 3 for every command that needs it, soon and in one line."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from bench.board import fill, stream_of
from kazoo.client import KazooClient
from tests.commands import tidemark
from tests.reference.commands import leaves
from tests.services import unique

from tidemark.drive.services import now_ms
from tidemark.environment import AIRFLOW, WEBHDFS, ZOOKEEPER, variable_of
from tidemark.inspect.board import last_days
from tidemark.ledger import paths
from tidemark.ledger.records import Timeline, dump
from tidemark.names import HOUR_MS, Hour
from tidemark.stack import Stack

NEEDS_NO_SERVICE = {"streams show", "boom read", "boom write", "boom verify", "parse", "demo"} | {
    f"stack {name}" for name in ("up", "down", "status", "env", "jars")
}
ASKING_ZOOKEEPER = (
    "why {stream} {hour}",
    "flags show {stream}",
    "flags accept {stream} {hour} --reason test --yes",
    "check {stream}",
    "verify {stream} {hour}",
    "streams check {stream}",
    "offsets show {stream}",
    "offsets set {stream} 0001-0 7 --yes",
    "timeline list {stream}",
    "timeline show {stream}",
    "timeline switch {stream} --cluster main --topic other --yes",
    "timeline retire {stream} 1 --yes",
    "timeline abandon {stream} 1 --yes",
    "workers show",
    "workers evict worker-0000000001 --yes",
    "locate {stream} 0001-0 7",
    "cat {stream} {hour}",
    "archive check {stream}",
    "archive repair {stream} --yes",
    "rebuild {stream} --yes",
    "retain {stream}",
)
ASKING_AIRFLOW = ("flags replay example_hourly --yes",)
ASKING_HDFS = (
    "flags show {stream}",
    "verify {stream} {hour}",
    "streams check {stream}",
    "cat {stream} {hour}",
    "locate {stream} 0001-0 7",
    "archive check {stream}",
)
ASKING_KAFKA = (
    "offsets show {stream}",
    "streams check {stream}",
    "timeline switch {stream} --cluster main --topic other --yes",
)


@pytest.fixture
def name() -> str:
    return unique("away")


@pytest.fixture
def environment(name: str, unused_port: int, tmp_path: Path) -> dict[str, str]:
    """Nothing listens at any of the connections, and nobody waits long for HDFS."""
    file = tmp_path / "streams.yaml"
    settings = {"cluster": "main", "topic": "t", "root": f"hdfs:///{name}", "owner": "tests", "retain": "30d"}
    file.write_text(json.dumps({"streams": {name: settings}}))
    nobody = {"host": "127.0.0.1", "port": unused_port}
    kafka = {"extra": {"bootstrap.servers": f"127.0.0.1:{unused_port}"}}
    return {
        "TIDEMARK_STREAMS": str(file),
        variable_of(ZOOKEEPER): json.dumps(nobody),
        variable_of(WEBHDFS): json.dumps({**nobody, "extra": {"retry_seconds": 2}}),
        variable_of("kafka_main"): json.dumps(kafka),
        variable_of(AIRFLOW): json.dumps({"host": f"http://127.0.0.1:{unused_port}", "login": "a", "password": "b"}),
    }


def run_all(
    lines: tuple[str, ...], name: str, hour: Hour, environment: Mapping[str, str]
) -> dict[str, "CompletedProcess[str]"]:
    def run(line: str) -> "CompletedProcess[str]":
        return tidemark(*line.format(stream=name, hour=hour).split(), environment=environment, within_s=180)

    with ThreadPoolExecutor(12) as threads:
        return dict(zip(lines, threads.map(run, lines), strict=True))


def is_told(done: "CompletedProcess[str]") -> bool:
    """In one line of standard error, or as a finding."""
    return len(done.stderr.splitlines()) == 1 or "UNREACHABLE" in done.stdout


def test_every_command_is_known_here() -> None:
    known = {" ".join(path) for path in leaves()}
    for line in ASKING_ZOOKEEPER + ASKING_AIRFLOW:
        assert any(line.startswith(command) for command in known)
    asked = {command for command in known for line in ASKING_ZOOKEEPER + ASKING_AIRFLOW if line.startswith(command)}
    assert known - asked == NEEDS_NO_SERVICE


def test_without_any_service_every_command_that_needs_one_is_3(name: str, environment: dict[str, str]) -> None:
    hour = Hour.of(now_ms() - 6 * HOUR_MS)
    found = run_all(ASKING_ZOOKEEPER + ASKING_AIRFLOW, name, hour, environment)
    assert {line: done.returncode for line, done in found.items()} == dict.fromkeys(found, 3)
    assert [line for line, done in found.items() if not is_told(done)] == []


def test_without_hdfs_or_kafka_every_command_that_needs_it_is_3(
    name: str, environment: dict[str, str], stack: Stack, client: KazooClient
) -> None:
    """Of a stream whose ledger says that every hour is ready."""
    now = now_ms()
    fill(client, stream_of(name), last_days(now, 2), now)
    timeline = Timeline(cluster="main", topic="t", topic_id="", switched_ms=now - 48 * HOUR_MS, partitions=1)
    client.create(paths.timeline(name, 1), dump(timeline), makepath=True)
    hour = Hour.of(now - 6 * HOUR_MS)
    alive = {variable_of(ZOOKEEPER): stack.environment()[variable_of(ZOOKEEPER)]}
    found = run_all(ASKING_HDFS + ASKING_KAFKA, name, hour, {**environment, **alive})
    assert {line: (done.returncode, done.stderr) for line, done in found.items() if done.returncode != 3} == {}
    assert [line for line, done in found.items() if not is_told(done)] == []
