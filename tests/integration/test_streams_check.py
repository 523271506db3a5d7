"""`tidemark streams check` against the living services: what is well, and each thing that can be wrong."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import requests
from bench.board import fill, stream_of
from kazoo.client import KazooClient
from tests.commands import tidemark
from tests.services import KafkaTopic, Sent, connections_of, unique, walk

from tidemark.drive.services import now_ms
from tidemark.environment import WEBHDFS, ZOOKEEPER, variable_of
from tidemark.inspect.board import last_days
from tidemark.ledger import paths
from tidemark.ledger.records import Positions, ShardPosition, Timeline, dump
from tidemark.ledger.stream import StreamLedger
from tidemark.names import HOUR_MS, Hour, Shard
from tidemark.stack import Stack
from tidemark.storage import Storage, open_storage

Check = Callable[..., "CompletedProcess[str]"]
Settings = dict[str, Any]
HOUR_AGO, DAYS_AGO = 1, 50


@pytest.fixture
def topic(stack: Stack) -> KafkaTopic:
    topic = KafkaTopic(stack, unique("checked"), 2)
    topic.send([Sent(partition=0, time_ms=now_ms(), value=b"a line")])
    return topic


@pytest.fixture
def settings(topic: KafkaTopic) -> Settings:
    """Of a stream that is as it should be."""
    root = f"hdfs:///{unique('roots')}/checked"
    return {"cluster": "main", "topic": topic.name, "root": root, "owner": "tests", "archive": {"target_size": "1MB"}}


@pytest.fixture
def name() -> str:
    return unique("stream")


@pytest.fixture
def check(stack: Stack, name: str, settings: Settings, tmp_path: Path) -> Check:
    """The command, with settings and connections that differ from the sound ones."""

    def run(*arguments: str, environment: Mapping[str, str] | None = None, **changed: Any) -> "CompletedProcess[str]":
        file = tmp_path / "streams.yaml"
        file.write_text(json.dumps({"streams": {name: {**settings, **changed}}}))
        around = {**stack.environment(), "TIDEMARK_STREAMS": str(file), **(environment or {})}
        return tidemark("streams", "check", *arguments, environment=around)

    return run


def top(stack: Stack, settings: Settings) -> Storage:
    """The folder above the root."""
    return open_storage(settings["root"].rpartition("/")[0], connections_of(stack))


def rows(done: "CompletedProcess[str]", verdict: str) -> list[tuple[str, str, str | None]]:
    return [
        (row["subject"], row["found"], row["wanted"]) for row in json.loads(done.stdout) if row["verdict"] == verdict
    ]


def open_since(client: KazooClient, name: str, topic: str, hours: int, *, following: int = 0) -> Hour:
    """A stream that was read up to so many hours ago; the first hour that is open."""
    ledger = StreamLedger(client, name)
    ledger.prepare()
    first = Hour.of(now_ms() - hours * HOUR_MS)
    timeline = Timeline(cluster="main", topic=topic, topic_id="", switched_ms=first.start_ms, partitions=2)
    position = ShardPosition(start=0, next=following, watermark_ms=first.start_ms, digest=None)
    positions = Positions(start_ms=first.start_ms, first_ms=first.start_ms)
    client.create(paths.timeline(name, 1), dump(timeline))
    client.set(paths.positions(name), dump(positions.with_shards({Shard(1, 0): position, Shard(1, 1): position})))
    return first


def test_a_sound_stream_is_well_and_nothing_is_left_behind(check: Check, stack: Stack, settings: Settings) -> None:
    done = check()
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split()[:2] for line in done.stdout.splitlines() if line.startswith("  ")]
    assert lines == [["ok", what] for what in ("zookeeper", "topic", "retention", "root", "space", "replication")]
    assert top(stack, settings).status("") is None


def test_a_root_that_is_there_stays_as_it_is(check: Check, stack: Stack, settings: Settings) -> None:
    storage = top(stack, settings)
    storage.create("checked/_tmp/theirs", b"work of a job")
    assert check().returncode == 0
    assert list(walk(storage)) == [("checked/_tmp/theirs", 13)]
    assert [status.path for status in storage.list("checked/_tmp")] == ["checked/_tmp/theirs"]


def test_a_topic_that_is_not_there_is_named_and_the_rest_is_checked(check: Check) -> None:
    done = check("--json", topic="nobody-made-it")
    assert done.returncode == 1
    [(subject, found, _)] = rows(done, "wrong")
    assert subject == "topic"
    assert "nobody-made-it" in found
    assert "has no such topic" in found
    assert {row[0] for row in rows(done, "ok")} == {"zookeeper", "root", "space", "replication"}


def test_a_topic_that_keeps_records_for_less_than_an_hour_is_wrong(check: Check, stack: Stack) -> None:
    short = KafkaTopic(stack, unique("short"), 1, config={"retention.ms": "1800000"})
    done = check("--json", topic=short.name)
    assert done.returncode == 1
    wanted = "more than 1:05:00: an hour and the grace"
    assert rows(done, "wrong") == [("retention", f"{short.name} on main keeps records 0:30:00", wanted)]


def test_records_are_kept_longer_than_the_longest_hour_that_is_open(
    check: Check, stack: Stack, name: str, client: KazooClient
) -> None:
    kept = KafkaTopic(stack, unique("kept"), 2, config={"retention.ms": str(48 * HOUR_MS)})
    oldest = open_since(client, name, kept.name, DAYS_AGO)
    done = check("--json", topic=kept.name)
    assert done.returncode == 1
    [(subject, found, wanted)] = rows(done, "wrong")
    assert (subject, found) == ("retention", f"{kept.name} on main keeps records 2 days, 0:00:00")
    assert str(wanted).endswith(f": {oldest} is open")


def test_the_topic_of_the_timeline_is_asked_not_the_configured_one(
    check: Check, topic: KafkaTopic, name: str, client: KazooClient
) -> None:
    open_since(client, name, topic.name, HOUR_AGO)
    assert check(topic="carried-the-stream-before").returncode == 0


def test_records_that_were_never_read_and_are_gone_are_told(
    check: Check, topic: KafkaTopic, name: str, client: KazooClient
) -> None:
    topic.send(Sent(partition=0, time_ms=now_ms(), value=b"line") for _ in range(9))
    topic.expire_before(0, 7)
    open_since(client, name, topic.name, HOUR_AGO, following=3)
    done = check("--json")
    assert done.returncode == 1
    [(subject, found, wanted)] = rows(done, "wrong")
    assert (subject, wanted) == ("retention", "3, the next to be read")
    assert "begins partition 0 at 7" in found


def test_a_root_that_may_not_be_written_is_named(check: Check, stack: Stack, settings: Settings) -> None:
    connection = json.loads(stack.environment()[variable_of(WEBHDFS)])
    stranger = json.dumps({**connection, "login": "stranger"})
    top(stack, settings).create("checked/theirs", b"")
    done = check("--json", environment={variable_of(WEBHDFS): stranger})
    assert done.returncode == 1
    [(subject, found, _)] = rows(done, "wrong")
    assert subject == "root"
    assert "Permission denied: user=stranger" in found
    assert list(walk(top(stack, settings))) == [("checked/theirs", 0)]


def test_a_local_root_below_a_file_is_wrong_and_the_file_stays(check: Check, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("theirs")
    done = check("--json", root=f"file://{file}/below")
    assert done.returncode == 1
    assert [row[0] for row in rows(done, "wrong")] == ["root"]
    assert file.read_text() == "theirs"


def test_a_local_root_leaves_nothing_behind(check: Check, tmp_path: Path) -> None:
    assert check(root=f"file://{tmp_path}/a/b").returncode == 0
    assert not (tmp_path / "a").exists()


def test_space_for_a_day_and_as_many_nodes_as_copies_are_wanted(check: Check) -> None:
    done = check("--json", files={"replication": 500}, archive={"target_size": "999999GB"})
    assert done.returncode == 1
    assert [row[0] for row in rows(done, "wrong")] == ["space", "replication"]
    assert ("replication", "500 copies of each file, 1 nodes that keep files", "500 nodes") in rows(done, "wrong")


def test_a_day_as_the_last_one_is_what_space_is_wanted_for(
    check: Check, name: str, client: KazooClient, topic: KafkaTopic
) -> None:
    """Hours that are ready, without a flag to be found: nothing is known of their bytes, and that is no error."""
    now = now_ms()
    fill(client, stream_of(name), last_days(now, 1), now)
    assert rows(check("--json", topic=topic.name), "wrong") == []


def test_a_quota_of_the_root_is_what_is_free(check: Check, stack: Stack, settings: Settings) -> None:
    connection = connections_of(stack)(WEBHDFS)
    top(stack, settings).make_folder("checked")
    path = settings["root"].removeprefix("hdfs://")
    params = {
        "op": "SETQUOTA",
        "namespacequota": "1000",
        "storagespacequota": "1000000000",
        "user.name": connection.login,
    }
    answer = requests.put(f"http://{connection.host}:{connection.port}/webhdfs/v1{path}", params=params, timeout=30)
    assert answer.ok, answer.text
    done = check("--json", archive={"target_size": "2GB"})
    assert [row[:2] for row in rows(done, "wrong")] == [("space", "1.0 GB of 1.0 GB are free")]


@pytest.mark.parametrize(
    ("variable", "away"),
    [
        (variable_of("kafka_main"), ["topic"]),
        (variable_of(WEBHDFS), ["root", "space"]),
        (variable_of(ZOOKEEPER), ["zookeeper"]),
    ],
)
def test_a_service_that_is_away_is_3_and_hides_nothing_of_the_rest(
    check: Check, unused_port: int, variable: str, away: list[str]
) -> None:
    connection = {"host": "127.0.0.1", "port": unused_port, "extra": {"bootstrap.servers": f"127.0.0.1:{unused_port}"}}
    done = check("--json", environment={variable: json.dumps(connection)})
    assert (done.returncode, done.stderr) == (3, "")
    assert [row[0] for row in rows(done, "unreachable")] == away
    well = {"zookeeper", "topic", "retention", "root", "space", "replication"}
    gone = {"topic": {"topic", "retention"}, "root": {"root", "space", "replication"}, "zookeeper": {"zookeeper"}}
    assert {row[0] for row in rows(done, "ok")} == well - gone[away[0]]


def test_an_unknown_stream_is_wrong_use_and_a_bad_setting_is_found(check: Check) -> None:
    assert check("no-such-stream").returncode == 2
    done = check("--json", grace="soon")
    assert (done.returncode, rows(done, "wrong")[0][0]) == (1, "configuration")


def test_streams_are_listed_without_any_service(name: str, settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "streams.yaml"
    file.write_text(json.dumps({"streams": {name: settings}}))
    environment = {"TIDEMARK_STREAMS": str(file)}
    assert name in tidemark("streams", environment=environment).stdout
    [row] = json.loads(tidemark("streams", "--json", environment=environment).stdout)
    assert row == {"stream": name, **{key: settings[key] for key in ("cluster", "topic", "root", "owner")}}
