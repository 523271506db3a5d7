"""ZooKeeper loses its data and a stream is rebuilt from storage alone: a ZooKeeper of its own, two brokers, HDFS."""

import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession
from tests.clusters import OTHER, TwoClusters
from tests.commands import tidemark
from tests.faults import nodes_below
from tests.pipeline import FIRST, Pipeline, at, build, expected_lines, records
from tests.services import Sent, connections_of, visible_lines, walk

from tidemark.drive.acts import accept_hour, look_at_switch, move_shard, retire, switch_timeline
from tidemark.drive.publish import events_to_send, publish_stream
from tidemark.drive.rebuild import rebuild_stream
from tidemark.drive.services import now_ms, services
from tidemark.environment import Connection, Connections
from tidemark.errors import CommitFailed, DataLoss, WrongUse
from tidemark.ledger import paths
from tidemark.ledger.records import Head, HourState, Retirement
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.names import DAY_MS, HOUR_MS, Hour, Shard, Task
from tidemark.publish.sweep import Publisher
from tidemark.stack import Stack

HOURS = [Hour(FIRST.start_ms + n * HOUR_MS) for n in range(8)]
OPERATOR = Task(name="operator", attempt=1)


class OwnZooKeeper:
    """A ZooKeeper that may lose everything without harm to other tests."""

    def __init__(self, stack: Stack, clusters: TwoClusters) -> None:
        self._stack = stack
        self._clusters = clusters

    def connections(self) -> Connections:
        others, own = self._clusters.connections(), connections_of(self._stack)

        def connection(conn_id: str) -> Connection:
            return own(conn_id) if conn_id == "zookeeper_default" else others(conn_id)

        return connection

    def environment(self) -> dict[str, str]:
        own = self._stack.environment()
        return {**self._clusters.environment(), **{name: own[name] for name in own if "ZOOKEEPER" in name}}

    def lose_everything(self) -> None:
        self._stack.kill("zookeeper")
        shutil.rmtree(self._stack.home / "zookeeper" / "data")
        self._stack.start("zookeeper")


@pytest.fixture
def zookeeper(clusters: TwoClusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnZooKeeper]:
    stack = Stack(tmp_path_factory.mktemp("zookeeper"))
    try:
        stack.up(("zookeeper",))
        yield OwnZooKeeper(stack, clusters)
    finally:
        stack.down()


def ledger_of(client: KazooClient, stream: str) -> dict[str, Any]:
    """All of the stream's nodes but leases, epochs, questions and events; a flag decided and not written is not."""
    left = ("lease", "epoch", "wanted")
    found = dict(nodes_below(client, paths.stream(stream)))
    nodes = {path: json.loads(data) for path, data in found.items() if data and path.split("/")[1] not in left}
    nodes["/head"].pop("epoch")
    for path, node in nodes.items():
        node.pop("unannounced", None)
        if path.startswith("/hours/"):
            node.pop("lease")
            if node.pop("publishing"):
                node["state"] = "READY" if node["revision"] else "ARCHIVED"
    return nodes


def go_through_everything(pipeline: Pipeline, target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours that are late, gapped and accepted, gapped and held, switched, half-published, not archived; acts."""
    stream, connections = pipeline.stream, pipeline.connections
    pipeline.topic.send(records(HOURS[0], 20, 2))
    assert pipeline.run(HOURS[0]) == [f"{HOURS[0]} 1"]
    pipeline.topic.send([*records(HOURS[1], 20, 2), Sent(partition=0, time_ms=HOURS[0].start_ms, value=b"late")])
    assert pipeline.run(HOURS[1]) == [f"{HOURS[0]} 2", f"{HOURS[1]} 1"]
    for hour in HOURS[2:4]:
        consumed = pipeline.ledger(lambda ledger: ledger.positions().value.shards[Shard(1, 0)].next)
        pipeline.topic.send(records(hour, 20, 2))
        with at(hour.start_ms + 60_000):
            move_shard(stream, Shard(1, 0), consumed + 3, connections, OPERATOR)
        assert pipeline.run(hour) == []
    accept_hour(stream, HOURS[2], "nobody misses them", connections, OPERATOR)
    assert pipeline.publish() == [f"{HOURS[2]} 1"]
    outlook = look_at_switch(stream, OTHER, target.name, connections)
    switch_timeline(stream, outlook, connections, OPERATOR, stable_s=0.0)
    target.send(records(HOURS[4], 20, 2))
    pipeline.consume(HOURS[4])
    pipeline.archive()

    def die(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Publisher, "_place", die)
        with pytest.raises(RuntimeError, match="killed"):
            pipeline.publish()
    target.send(records(HOURS[5], 20, 2))
    pipeline.consume(HOURS[5])
    retire(stream, Retirement(timeline=1, abandoned=False), connections, OPERATOR)


def backfill_a_day(pipeline: Pipeline) -> list[Hour]:
    """Of a stream that began later: its 24 hours, and its day's flag. The hours up to now become ready with them."""
    midnight = Hour.parse(f"{Hour.of(now_ms() - 2 * DAY_MS).day}T00")
    day = [Hour(midnight.start_ms + n * HOUR_MS) for n in range(25)]
    pipeline.topic.send(records(day[3], 10, 1))
    pipeline.run(day[24])
    pipeline.topic.let_the_broker_set_times()
    for hour in reversed(day[:24]):
        pipeline.consume(hour)
    pipeline.archive()
    assert f"{day[0].day} 1" in pipeline.publish()
    return day


def test_streams_are_rebuilt_from_storage_alone_and_go_on_without_a_record_lost_or_doubled(
    clusters: TwoClusters,
    zookeeper: OwnZooKeeper,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    connections = zookeeper.connections()
    pipeline = build(
        clusters.main,
        spark,
        "hdfs",
        "/rebuild",
        partitions=2,
        connections=connections,
        grace="3s",
        max_clock_skew="2s",
    )
    older = build(clusters.main, spark, "hdfs", "/rebuild", partitions=1, connections=connections, start="latest")
    name, target = pipeline.stream.name, clusters.topic(OTHER, 2)
    go_through_everything(pipeline, target, monkeypatch)
    backfill_a_day(older)
    assert pipeline.ledger(lambda ledger: ledger.hour(HOURS[4]).value.state) is HourState.PUBLISHING
    assert pipeline.ledger(lambda ledger: ledger.hour(HOURS[5]).value.dirty)
    with pytest.raises(WrongUse, match="ZooKeeper knows it"):
        rebuild_stream(pipeline.stream, connections, OPERATOR)

    with ExitStack() as opened:
        before_it_was_lost = opened.enter_context(services(pipeline.stream, connections, Task(name="job", attempt=1)))
        epoch = before_it_was_lost.lease().take(wait_s=10).epoch
        streams = (name, older.stream.name)
        before = {stream: ledger_of(before_it_was_lost.client, stream) for stream in streams}
        files = {path: pipeline.storage.read(path) for path, _ in walk(pipeline.storage) if not path.startswith("_tmp")}
        zookeeper.lose_everything()

        with pytest.raises(DataLoss, match=f"`tidemark rebuild {name}` restores its ledger"):
            pipeline.consume(HOURS[6])
        done = _rebuild(pipeline, zookeeper, tmp_path)
        assert f"{name} is rebuilt from 11 manifests: 6 hours, 0 days" in done
        client = opened.enter_context(open_session(connections))
        rebuild_stream(older.stream, connections, OPERATOR)
        assert {stream: ledger_of(client, stream) for stream in streams} == before
        assert {path: pipeline.storage.read(path) for path, _ in walk(pipeline.storage)} == files
        _assert_cannot_commit(StreamLedger(client, name), epoch)

    assert older.publish() == []
    target.send(records(HOURS[6], 20, 2))
    assert pipeline.run(HOURS[6]) == [f"{hour} 1" for hour in HOURS[4:7]]
    wanted = [*expected_lines(pipeline.topic), *expected_lines(target)]
    given_up = {(hour, n) for hour in HOURS[2:4] for n in (0, 2, 4)}
    left_out = {f"{hour} line {n}".encode() for hour, n in given_up}
    assert sorted(visible_lines(pipeline.storage)) == sorted(line for line in wanted if line[1] not in left_out)
    assert set(files) <= {path for path, _ in walk(pipeline.storage)} | {p for p in files if "/_incoming/" in p}


def _rebuild(pipeline: Pipeline, zookeeper: OwnZooKeeper, folder: Path) -> str:
    stream = pipeline.stream
    settings = {"cluster": "main", "topic": stream.topic, "root": stream.root, "owner": "test"}
    file = folder / "streams.yaml"
    file.write_text(json.dumps({"streams": {stream.name: settings}}))
    environment: Mapping[str, str] = {**zookeeper.environment(), "TIDEMARK_STREAMS": str(file)}
    done = tidemark("rebuild", stream.name, "--yes", environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _assert_cannot_commit(ledger: StreamLedger, epoch: int) -> None:
    """As a job of before would that finds a connection: with its epoch, and all else as it is now."""
    head = ledger.head()
    transaction = ledger.begin("commit of a zombie")
    transaction.check_exists(paths.epoch(ledger.stream, epoch))
    transaction.put(paths.head(ledger.stream), Head(number=99), version=head.version)
    with pytest.raises(CommitFailed, match="the state has moved on"):
        transaction.commit()
    assert ledger.head() == head


def test_backfills_and_days_are_rebuilt_too_and_events_that_airflow_lacks_are_sent(
    clusters: TwoClusters, zookeeper: OwnZooKeeper, spark: SparkSession
) -> None:
    pipeline = build(
        clusters.main, spark, "hdfs", "/rebuild", partitions=1, connections=zookeeper.connections(), start="latest"
    )
    day = backfill_a_day(pipeline)
    with open_session(pipeline.connections) as client:
        before = ledger_of(client, pipeline.stream.name)
    zookeeper.lose_everything()
    rebuild_stream(pipeline.stream, pipeline.connections, OPERATOR)
    with open_session(pipeline.connections) as client:
        assert ledger_of(client, pipeline.stream.name) == before
    assert pipeline.publish() == []

    flags = publish_stream(pipeline.stream, pipeline.connections, OPERATOR).unannounced
    known = {(flag.subject, flag.revision) for flag in flags}
    assert known >= {(str(hour), 1) for hour in day} | {(day[0].day, 1)}
    unheard = {(str(day[23]), 1), (day[0].day, 1)}

    def send(seen: Collection[tuple[str, int]] | None) -> set[tuple[str, int]]:
        sent = events_to_send(pipeline.stream.name, pipeline.connections, flags, lambda _: seen)
        return {(flag.subject, flag.revision) for flag in sent}

    assert send(None) == set()
    assert send(known - unheard) == unheard
    assert send(known) == set()
    assert publish_stream(pipeline.stream, pipeline.connections, OPERATOR).unannounced == []
