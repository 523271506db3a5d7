"""A stream moves between topics and clusters: on two real brokers, ZooKeeper, HDFS and Spark."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.clusters import OTHER, TwoClusters
from tests.commands import tidemark
from tests.pipeline import FIRST, Pipeline, records
from tests.services import Sent, read_json, walk
from tests.switching import (
    OPERATOR,
    Commands,
    assert_each_record_once,
    assert_killed_switch_leaves_all_or_nothing,
    completed_shards,
    moving_pipeline,
    switch,
    timelines_of,
    version_of,
)
from tests.waiting import wait_until

from tidemark.drive import acts
from tidemark.drive.acts import look_at_switch, retire, switch_timeline
from tidemark.drive.measure import standing
from tidemark.drive.services import clusters as kafka_of
from tidemark.drive.services import services
from tidemark.drive.why import why
from tidemark.environment import Connection
from tidemark.errors import Fenced, TidemarkError, WrongUse
from tidemark.failpoints import FAILPOINTS, Failpoint
from tidemark.inspect.locate import locate_offset
from tidemark.inspect.verify import verify_records
from tidemark.ledger.lease import LeaseTaken
from tidemark.ledger.records import Retirement
from tidemark.lineage import Cursor, cursor_of
from tidemark.metrics import GROWN_RECORDS
from tidemark.names import HOUR_MS, Hour, Shard, Task
from tidemark.plan.switch import SwitchOutlook
from tidemark.publish import sweep
from tidemark.publish.rule import Cause

SECOND, THIRD = Hour(FIRST.end_ms), Hour(FIRST.end_ms + HOUR_MS)


@pytest.fixture
def make(clusters: TwoClusters, spark: SparkSession) -> Callable[..., Pipeline]:
    def make(partitions: int = 2, max_records: int = 1000) -> Pipeline:
        return moving_pipeline(clusters, spark, partitions=partitions, max_records=max_records)

    return make


@pytest.mark.parametrize(("before", "after"), [(4, 6), (6, 4)])
def test_a_stream_moves_to_another_cluster_and_every_record_is_in_the_files_exactly_once(
    make: Callable[..., Pipeline], clusters: TwoClusters, before: int, after: int
) -> None:
    pipeline, target = make(before), clusters.topic(OTHER, after)
    pipeline.topic.send(records(FIRST, 60, before))
    assert pipeline.run(FIRST) == [f"{FIRST} 1"]
    pipeline.topic.send(records(SECOND, 30, before))
    switch(pipeline, target)
    target.send(records(SECOND, 20, after) + records(THIRD, 50, after))
    assert version_of(pipeline) == 2
    assert timelines_of(pipeline)[2].parents == "all"
    assert pipeline.run(SECOND) == [f"{SECOND} 1"]
    assert completed_shards(pipeline) == [f"0001-{partition}" for partition in range(before)]
    assert pipeline.run(THIRD) == [f"{THIRD} 1"]
    assert_each_record_once(pipeline, target)
    flag = read_json(pipeline.storage, f"{SECOND.day}/23/_READY")
    assert len(flag["shards"]) == before + after
    assert flag["shards"]["0001-0"]["proof"] == "completed"
    assert flag["counts"]["lines"] == 50
    assert "alarms" not in flag
    found = list(verify_records(pipeline.stream, flag, timelines_of(pipeline), kafka_of(pipeline.connections)))
    assert [(finding.agrees, finding.text) for finding in found if not finding.agrees] == []
    assert len(found) == before + after
    act = read_json(pipeline.storage, "_manifests/00000002-switch-00000002.json")
    assert act["timelines"]["0001"]["latest"] == [90 // before - 1 + (p < 90 % before) for p in range(before)]


def test_records_that_come_to_the_old_topic_later_are_taken_with_an_alarm_until_it_is_retired(
    make: Callable[..., Pipeline], clusters: TwoClusters, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline, target = make(), clusters.topic(OTHER, 2)
    pipeline.topic.send(records(FIRST, 10, 2))
    pipeline.run(FIRST)
    switch(pipeline, target)
    pipeline.run(SECOND)
    assert completed_shards(pipeline) == ["0001-0", "0001-1"]
    pipeline.topic.send([Sent(partition=1, time_ms=THIRD.start_ms, value=b"straggler")])
    target.send(records(THIRD, 4, 2))
    assert pipeline.run(THIRD) == [f"{THIRD} 1"]
    alarm = "alarm: shard 0001-1 was closed at offset 5"
    assert alarm in caplog.text
    assert_each_record_once(pipeline, target)
    assert completed_shards(pipeline) == ["0001-0", "0001-1"]
    assert (timelines_of(pipeline)[1].latest, timelines_of(pipeline)[1].snapshot) == ((4, 5), (5, 5))
    (told,) = read_json(pipeline.storage, f"{THIRD.day}/00/_READY")["alarms"]
    assert told.startswith(alarm)
    assert any(line.strip().startswith(alarm) for line in why(pipeline.stream, THIRD, pipeline.connections).lines("s"))
    assert standing(pipeline.stream, pipeline.connections)[GROWN_RECORDS] == 1

    retire(pipeline.stream, Retirement(timeline=1, abandoned=False), pipeline.connections, OPERATOR)
    pipeline.topic.send([Sent(partition=1, time_ms=THIRD.start_ms, value=b"nobody asks any more")])
    fourth = Hour(THIRD.end_ms)
    assert pipeline.run(fourth) == [f"{fourth} 1"]
    shards = pipeline.ledger(lambda ledger: ledger.positions().value.shards)
    assert sorted(shards) == [Shard(2, 0), Shard(2, 1)]
    assert standing(pipeline.stream, pipeline.connections)[GROWN_RECORDS] == 0
    for offset, line in ((0, f"{FIRST} line 1"), (5, "straggler")):
        found = pipeline.ledger(partial(locate_offset, pipeline.storage, shard=Shard(1, 1), offset=offset))
        assert found.line.message.decode() == line


def test_three_switches_in_a_row_over_timelines_that_were_never_used(
    make: Callable[..., Pipeline], clusters: TwoClusters
) -> None:
    pipeline = make()
    targets = [clusters.topic(cluster, 2) for cluster in (OTHER, "main", OTHER)]
    pipeline.topic.send(records(FIRST, 10, 2))
    pipeline.run(FIRST)
    for target, cluster in zip(targets, (OTHER, "main", OTHER), strict=True):
        switch(pipeline, target, cluster)
    targets[-1].send(records(SECOND, 6, 2))
    assert pipeline.run(SECOND) == [f"{SECOND} 1"]
    assert completed_shards(pipeline) == [f"000{order}-{p}" for order in (1, 2, 3) for p in (0, 1)]
    found = timelines_of(pipeline)
    assert [found[order].latest for order in (1, 2, 3, 4)] == [(4, 4), (-1, -1), (-1, -1), None]
    assert {cursor_of(Shard(order, 0), -1, found) for order in (2, 3, 4)} == {Cursor(1, 4)}
    assert_each_record_once(pipeline, *targets)
    wanted = {"0001-0": [1, 4], "0002-0": [1, 4], "0003-0": [1, 4], "0004-0": [4, 2]}
    for path in (f"{SECOND.day}/23/_READY", "_manifests/00000005-20261110T2300.json"):
        shards = read_json(pipeline.storage, path)["shards"]
        assert {shard: row["cursor"] for shard, row in shards.items() if shard in wanted} == wanted
    last = pipeline.ledger(lambda ledger: locate_offset(pipeline.storage, ledger, Shard(4, 0), -1))
    assert (last.place.shard, last.cursor) == ("0001-0", Cursor(1, 4))


def test_nothing_is_planned_before_the_switch_and_the_grace_and_consume_waits_that_long(
    make: Callable[..., Pipeline], clusters: TwoClusters
) -> None:
    pipeline, target = make(), clusters.topic(OTHER, 2)
    pipeline.run(FIRST)
    switch(pipeline, target)
    # `plan` leaves it to `consume`, which waits.
    assert pipeline.plan(SECOND) == "20261110T2300"
    assert pipeline.ledger(lambda ledger: ledger.shift("20261110T2300")) is None
    pipeline.consume(SECOND)
    planned = read_json(pipeline.storage, "_manifests/00000003-20261110T2300.json")["shift"]["planned_ms"]
    assert planned >= timelines_of(pipeline)[2].switched_ms + 3000
    assert completed_shards(pipeline) == ["0001-0", "0001-1"]


def test_a_cluster_that_is_gone_is_left_with_the_operators_offsets_and_abandoned_with_a_gap(
    make: Callable[..., Pipeline], clusters: TwoClusters
) -> None:
    pipeline, target = make(), clusters.topic(OTHER, 2)
    pipeline.topic.send(records(FIRST, 10, 2))
    pipeline.run(FIRST)
    known = pipeline.connections

    def without_main(conn_id: str) -> Connection:
        """Nobody can ask it: that would be an error at once."""
        return Connection(conn_id=conn_id) if conn_id == "kafka_main" else known(conn_id)

    stream = pipeline.stream
    with pytest.raises(WrongUse, match=r"partition 0 was read up to 4, found 3"):
        switch(pipeline, target, latest=[3, 7])
    with pytest.raises(WrongUse, match=r"partition 1 ends at 4, found 7"):
        switch(pipeline, target, latest=[4, 7])
    outlook = look_at_switch(stream, OTHER, target.name, without_main)
    switch_timeline(stream, outlook, without_main, OPERATOR, latest=[6, 4])
    with pytest.raises(WrongUse, match=r"2 of its shards are not completed, 0001-0 first"):
        retire(stream, Retirement(timeline=1, abandoned=False), without_main, OPERATOR)
    retire(stream, Retirement(timeline=1, abandoned=True), without_main, OPERATOR)
    gaps = pipeline.ledger(lambda ledger: ledger.hour(SECOND).value.gaps)
    assert [(gap.shard, gap.start, gap.end) for gap in gaps] == [("0001-0", 5, 7), ("0001-1", 5, 5)]
    target.send(records(SECOND, 6, 2))
    time.sleep(3)
    gone_main = Pipeline(
        stream=stream,
        topic=pipeline.topic,
        stack=pipeline.stack,
        spark=pipeline.spark,
        storage=pipeline.storage,
        connections=without_main,
    )
    assert gone_main.run(SECOND) == []
    assert_each_record_once(pipeline, target)
    answer = why(stream, SECOND, without_main).as_json()
    assert {reason["cause"] for reason in answer["reasons"]} == {Cause.GAP}


# The lock


def test_a_switch_waits_for_a_bounded_time_then_changes_nothing_or_evicts(
    make: Callable[..., Pipeline], clusters: TwoClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acts, "LEASE_WAIT_S", 1.0)
    pipeline, target = make(), clusters.topic(OTHER, 2)
    pipeline.run(FIRST)
    with services(pipeline.stream, pipeline.connections, Task(name="stuck", attempt=1)) as around:
        held = around.lease().take(wait_s=0)
        with pytest.raises(LeaseTaken, match="holds it for stuck, try 1"):
            switch(pipeline, target)
        assert version_of(pipeline) == 1
        assert not around.ledger.is_lease_wanted()
        held.confirm()
        steps: list[str] = []
        around.announce(_committed_shift(pipeline))
        switch(pipeline, target, evict=True, on_step=steps.append)
        with pytest.raises(Fenced):
            held.confirm()
    assert version_of(pipeline) == 2
    assert f"{around.worker.name} (stuck) still has version 1: it cannot commit" in steps


def _committed_shift(pipeline: Pipeline) -> Any:
    from tidemark.manifest import read_manifest

    (path,) = [path for path, _ in walk(pipeline.storage, "_manifests") if path.endswith("2200.json")]
    return read_manifest(pipeline.storage, path).shift


def test_a_job_that_takes_a_backlog_in_bites_gives_way_and_goes_on_afterwards(
    make: Callable[..., Pipeline], clusters: TwoClusters
) -> None:
    pipeline, target = make(max_records=4), clusters.topic(OTHER, 2)
    pipeline.topic.send(records(FIRST, 40, 2))
    consumer = threading.Thread(target=pipeline.consume, args=(FIRST,))
    consumer.start()
    wait_until(lambda: pipeline.ledger(lambda ledger: ledger.head().value.number) > 2, "some bites", within_s=120)
    act = switch(pipeline, target)
    consumer.join(300)
    assert not consumer.is_alive()
    last = pipeline.ledger(lambda ledger: ledger.head().value.number)
    assert 2 < int(act.rpartition("-")[2]) < last
    pipeline.archive()
    assert_each_record_once(pipeline)


def test_of_two_initiators_at_once_one_switches_and_the_other_gets_a_clear_error(
    make: Callable[..., Pipeline], clusters: TwoClusters
) -> None:
    pipeline = make()
    pipeline.run(FIRST)
    both = [
        look_at_switch(pipeline.stream, OTHER, clusters.topic(OTHER, 2).name, pipeline.connections) for _ in range(2)
    ]
    begin = threading.Barrier(2)

    def initiate(outlook: SwitchOutlook) -> str:
        begin.wait(60)
        try:
            switch_timeline(pipeline.stream, outlook, pipeline.connections, OPERATOR, stable_s=0.5)
        except TidemarkError as error:
            return str(error)
        return outlook.topic.name

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(initiate, both))
    (error,) = [text for text in found if text.endswith("somebody else changed them meanwhile")]
    assert "its timelines have version 2, wanted 1" in error
    found.remove(error)
    assert [(order, timeline.topic) for order, timeline in timelines_of(pipeline).items()] == [
        (1, pipeline.stream.topic),
        (2, found[0]),
    ]


def test_a_publisher_that_loses_against_a_switch_decides_again_with_the_new_version(
    make: Callable[..., Pipeline], clusters: TwoClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, target = make(), clusters.topic(OTHER, 2)
    pipeline.topic.send(records(FIRST, 10, 2))
    pipeline.consume(FIRST)
    pipeline.archive()

    def switch_once(failpoint: Failpoint) -> None:
        if failpoint == "publish.hour_prepared" and version_of(pipeline) == 1:
            switch(pipeline, target)

    monkeypatch.setattr(sweep, "reach", switch_once)
    assert pipeline.publish() == [f"{FIRST} 1"]
    assert version_of(pipeline) == 2
    flag = read_json(pipeline.storage, f"{FIRST.day}/22/_READY")
    assert {shard: row["cursor"] for shard, row in flag["shards"].items()} == {
        f"{order:04d}-{partition}": [1, 4] for order in (1, 2) for partition in (0, 1)
    }
    assert list(walk(pipeline.storage, "_tmp")) == []


def test_ends_that_do_not_stand_still_refuse_the_switch(make: Callable[..., Pipeline], clusters: TwoClusters) -> None:
    pipeline, target = make(), clusters.topic(OTHER, 2)
    pipeline.run(FIRST)
    over = threading.Event()

    def write() -> None:
        while not over.wait(0.05):
            pipeline.topic.send([Sent(partition=0, time_ms=SECOND.start_ms, value=b"x")])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with pytest.raises(TidemarkError, match=r"did not stand still for 2 s; move its producers first"):
            switch(pipeline, target, stable_s=2.0)
    finally:
        over.set()
        writer.join()
    assert version_of(pipeline) == 1


@pytest.mark.parametrize("failpoint", [name for name in FAILPOINTS if name.startswith(("switch.", "act."))])
def test_a_switch_whose_initiator_is_killed_happens_whole_or_not_at_all(
    clusters: TwoClusters, spark: SparkSession, tmp_path: Path, failpoint: Failpoint
) -> None:
    """At its own steps; those that it shares with every commit are tried in tests/long."""
    assert_killed_switch_leaves_all_or_nothing(clusters, spark, tmp_path, failpoint)


# The command


def test_the_command_shows_each_step_and_the_graph(
    make: Callable[..., Pipeline], clusters: TwoClusters, tmp_path: Path
) -> None:
    pipeline, target = make(), clusters.topic(OTHER, 2)
    commands = Commands(pipeline, clusters.environment(), tmp_path)
    where = ("--cluster", OTHER, "--topic", target.name)
    done = commands.run("switch", *where, "--dry-run")
    assert (done.returncode, "it was never planned" in done.stderr) == (2, True)
    pipeline.topic.send(records(FIRST, 10, 2))
    pipeline.run(FIRST)

    done = commands.run("switch", *where, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "Each new shard waits for the same partition of the old topic" in done.stdout
    assert version_of(pipeline) == 1
    latest = tmp_path / "latest.json"
    latest.write_text("[4]")
    no_list = tmp_path / "no-list.json"
    no_list.write_text('{"0": 4}')
    for wrong, told in [
        (("--cluster", "nowhere", "--topic", target.name), "kafka_nowhere"),
        ((*where, "--latest", str(latest)), "found 1 last offsets, wanted one for each of 2"),
        ((*where, "--latest", str(no_list)), "wanted a JSON list of last offsets such as [41, -1]"),
        ((*where, "--latest", str(latest), "--stable-for", "1s"), "wanted one source of the last offsets"),
        (("--cluster", OTHER, "--topic", "no-such-topic"), "has no such topic"),
        (("--cluster", "main", "--topic", pipeline.stream.topic), "timeline 1 has claimed its records"),
        ((*where, "--stable-for", "soon"), "wanted a number and a unit"),
    ]:
        done = commands.run("switch", *wrong, "--yes")
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr
    assert version_of(pipeline) == 1

    done = commands.run("switch", *where, "--stable-for", "1s", "--yes")
    assert done.returncode == 0, done.stderr
    steps = done.stdout.splitlines()[2:]
    assert [step.partition(":")[0] for step in steps[:3]] == ["lock", "snapshot", "switched"]
    assert "the last offsets of timeline 1 are [4, 4]" in done.stdout

    listed = json.loads(commands.run("list", "--json").stdout)
    assert [(row["timeline"], row["state"], row["latest"]) for row in listed] == [
        (1, "closed", [4, 4]),
        (2, "open", None),
    ]
    shown = json.loads(commands.run("show", "--json").stdout)
    assert shown[1]["shards"][1]["parents"] == ["0001-1"]
    assert [shard["cursor"] for shard in shown[1]["shards"]] == [[1, 4], [1, 4]]
    assert "0002-0 after 0001-0: next 0, watermark" in commands.run("show").stdout
    assert "0 of 2" in commands.run("list").stdout
    environment = {**clusters.environment(), "TIDEMARK_STREAMS": str(tmp_path / "streams.yaml")}
    for line in ("list typo", "show typo", "retire typo 1", "abandon typo 1"):
        done = tidemark("timeline", *line.split(), environment=environment)
        assert (done.returncode, done.stdout, pipeline.stream.name in done.stderr) == (2, "", True)
    done = commands.run("retire", "1")
    assert (done.returncode, "say --yes" in done.stderr) == (2, True)
    assert done.stdout.startswith(f"Timeline 1 of {pipeline.stream.name} is closed, 0 of its shards are completed.\n")
    for act in ("retire", "abandon"):
        done = commands.run(act, "7")
        assert (done.returncode, done.stdout, "it has 1, 2" in done.stderr) == (2, "", True)
    done = commands.run("retire", "2", "--yes")
    assert (done.returncode, "it is open" in done.stderr) == (2, True)
    latest.write_text("[-1, -1]")
    further = ("--cluster", OTHER, "--topic", clusters.topic(OTHER, 2).name, "--latest", str(latest))
    done = commands.run("switch", *further, "--yes")
    assert (done.returncode, "the last offsets of timeline 2 are [-1, -1]" in done.stdout) == (0, True), done.stderr
