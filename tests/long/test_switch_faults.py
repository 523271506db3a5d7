"""A switch whose initiator dies, stands still or loses ZooKeeper; a producer that never pauses: two real brokers."""

import random
import signal
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession
from tests.clusters import OTHER, TwoClusters
from tests.jobs import ConsumeJob
from tests.pipeline import FIRST, Pipeline, interval_of, records
from tests.proxy import Proxy
from tests.services import KafkaTopic, Sent, read_json, walk
from tests.switching import (
    SECOND,
    Commands,
    assert_each_record_once,
    assert_goes_on,
    assert_killed_switch_leaves_all_or_nothing,
    completed_shards,
    moving_pipeline,
    nodes_of,
    switch,
    timelines_of,
    version_of,
)
from tests.waiting import wait_until

from tidemark import layout
from tidemark.drive.acts import LEASE_WAIT_S
from tidemark.drive.services import services
from tidemark.environment import ZOOKEEPER, Connection
from tidemark.errors import CommitFailed, CommitStateUnknown, TidemarkError
from tidemark.failpoints import Failpoint
from tidemark.ledger import paths
from tidemark.ledger.lease import read_lease
from tidemark.ledger.records import Head
from tidemark.ledger.stream import StreamLedger
from tidemark.names import HOUR_MS, Hour, Task

THIRD = Hour(SECOND.end_ms)
STEPS: tuple[Failpoint, ...] = (
    "lease.before_take",
    "lease.after_take",
    "switch.after_lock",
    "switch.after_snapshot",
    "act.before_transaction",
    "act.after_transaction",
    "commit.before_manifest",
    "commit.before_pending",
    "commit.after_pending",
    "commit.after_blocks",
    "commit.after_manifest_moved",
    "commit.after_discard",
    "commit.before_transaction",
    "commit.after_transaction",
    "lease.before_release",
    "lease.after_release",
)


@pytest.mark.parametrize("failpoint", STEPS)
def test_a_switch_whose_initiator_is_killed_at_any_step_happens_whole_or_not_at_all(
    clusters: TwoClusters, spark: SparkSession, tmp_path: Path, failpoint: Failpoint
) -> None:
    assert_killed_switch_leaves_all_or_nothing(clusters, spark, tmp_path, failpoint)


def test_an_initiator_that_stood_still_while_others_worked_changes_nothing_when_it_wakes(
    clusters: TwoClusters, spark: SparkSession, tmp_path: Path
) -> None:
    pipeline, target = moving_pipeline(clusters, spark), clusters.topic(OTHER, 2)
    pipeline.topic.send(records(FIRST, 10, 2))
    pipeline.run(FIRST)
    commands = Commands(pipeline, clusters.environment(), tmp_path)
    with commands.begin_switch(target, "act.before_transaction", "stop", tmp_path / "witness") as process:
        status = psutil.Process(process.pid).status
        wait_until(lambda: status() == psutil.STATUS_STOPPED, "the initiator stands still", within_s=120)
        pipeline.topic.send(records(SECOND, 10, 2))
        assert pipeline.run(SECOND) == [f"{SECOND} 1"]
        process.send_signal(signal.SIGCONT)
        told, _ = process.communicate(timeout=180)
    assert process.returncode == 1, told
    assert (sorted(timelines_of(pipeline)), version_of(pipeline)) == ([1], 1)
    assert_each_record_once(pipeline)


def test_a_switch_over_a_restart_of_zookeeper_happens_whole_or_not_at_all(
    clusters: TwoClusters, spark: SparkSession, tmp_path: Path
) -> None:
    pipeline, target = moving_pipeline(clusters, spark), clusters.topic(OTHER, 2)
    pipeline.topic.send(records(FIRST, 10, 2))
    pipeline.run(FIRST)
    witness = tmp_path / "witness"
    commands = Commands(pipeline, clusters.environment(), tmp_path)
    with commands.begin_switch(target, "switch.after_snapshot", "wait", witness) as process:
        wait_until(witness.exists, "the snapshot is taken", within_s=120)
        clusters.main.kill("zookeeper")
        clusters.main.start("zookeeper")
        witness.unlink()
        told, _ = process.communicate(timeout=180)
    orders = sorted(timelines_of(pipeline))
    assert orders == ([1, 2] if process.returncode == 0 else [1]), told
    if orders == [1]:
        switch(pipeline, target)
    assert_goes_on(pipeline, target)


def test_a_job_that_is_cut_off_from_zookeeper_does_not_hold_a_switch_and_cannot_commit_after_it(
    clusters: TwoClusters, spark: SparkSession
) -> None:
    pipeline, target = moving_pipeline(clusters, spark), clusters.topic(OTHER, 2)
    pipeline.topic.send(records(FIRST, 10, 2))
    pipeline.run(FIRST)
    direct = pipeline.connections(ZOOKEEPER)
    assert direct.host is not None
    assert direct.port is not None
    with Proxy(direct.host, direct.port) as proxy, ExitStack() as opened:

        def through_proxy(conn_id: str) -> Connection:
            found = pipeline.connections(conn_id)
            return replace(found, port=proxy.port) if conn_id == ZOOKEEPER else found

        job = opened.enter_context(services(pipeline.stream, through_proxy, Task(name="cut off", attempt=1)))
        lease = job.lease().take(wait_s=60)
        head = job.ledger.head()
        transaction = job.ledger.begin("commit of a job that was cut off")
        lease.check_in(transaction)
        transaction.put(paths.head(pipeline.stream.name), Head(number=99), version=head.version)
        proxy.cut()
        switch(pipeline, target)
        proxy.heal()
        wait_until(lambda: bool(job.client.connected), "the job is connected again", within_s=120)
        with pytest.raises((CommitFailed, CommitStateUnknown)):
            transaction.commit()
    assert version_of(pipeline) == 2
    assert_goes_on(pipeline, target)


@pytest.mark.parametrize("act", ["kill", "stop"])
@pytest.mark.parametrize("failpoint", ["consume.after_read", "commit.before_transaction"])
def test_a_job_that_dies_or_stands_still_does_not_hold_a_switch_and_every_record_is_there_once(
    clusters: TwoClusters, spark: SparkSession, tmp_path: Path, failpoint: Failpoint, act: str
) -> None:
    """Before it began to commit its shift gives way; one that only lacked its transaction is rolled forward."""
    pipeline, target = moving_pipeline(clusters, spark), clusters.topic(OTHER, 2)
    pipeline.topic.send(records(FIRST, 10, 2))
    pipeline.run(FIRST)
    pipeline.topic.send(records(SECOND, 10, 2))
    task = Task(name="worker", attempt=1)
    armed = {failpoint: act}
    with ConsumeJob(clusters.main, pipeline.stream, interval_of(SECOND), task, tmp_path / "job", armed) as job:
        if act == "kill":
            job.wait()
        else:
            job.wait_until_stopped(failpoint)
        assert job.reached == [failpoint], job.log
        switch(pipeline, target)
        if act == "stop":
            job.go_on()
            # Whose shift was rolled forward while it stood still reads back that it is committed.
            assert job.wait() != 0 or failpoint == "commit.before_transaction"
    assert (sorted(timelines_of(pipeline)), version_of(pipeline)) == ([1, 2], 2)
    assert_goes_on_whole(pipeline, target)


def assert_goes_on_whole(pipeline: Pipeline, target: KafkaTopic) -> None:
    """The hour that was under way and the next one, of the new topic: every record once, and nothing left behind."""
    target.send(records(THIRD, 8, 2))
    assert pipeline.run(SECOND) == [f"{SECOND} 1"]
    assert pipeline.run(THIRD) == [f"{THIRD} 1"]
    assert completed_shards(pipeline) == ["0001-0", "0001-1"]
    assert_each_record_once(pipeline, target)
    assert list(walk(pipeline.storage, "_tmp")) == []


def settled_nodes(pipeline: Pipeline) -> dict[str, bytes]:
    """Without the lease, which its holder renews, and the question for it."""
    moving = (paths.lease(pipeline.stream.name), paths.wanted(pipeline.stream.name))
    return {path: data for path, (data, _) in nodes_of(pipeline).items() if path not in moving}


def test_a_switch_gives_up_on_a_job_that_does_not_answer_after_a_bounded_time_and_the_job_goes_on(
    clusters: TwoClusters, spark: SparkSession, tmp_path: Path
) -> None:
    pipeline, target = moving_pipeline(clusters, spark), clusters.topic(OTHER, 2)
    pipeline.run(FIRST)
    pipeline.topic.send(records(SECOND, 10, 2))
    commands = Commands(pipeline, clusters.environment(), tmp_path)
    task = Task(name="worker", attempt=1)
    armed: dict[Failpoint, str] = {"consume.after_read": "wait"}
    with ConsumeJob(clusters.main, pipeline.stream, interval_of(SECOND), task, tmp_path / "job", armed) as job:
        job.wait_until_reached("consume.after_read")
        held = pipeline.ledger(lambda ledger: read_lease(ledger.client, ledger.stream))
        before, began = settled_nodes(pipeline), time.monotonic()
        done = commands.run("switch", "--cluster", OTHER, "--topic", target.name, "--stable-for", "1s", "--yes")
        assert time.monotonic() - began >= LEASE_WAIT_S
        found = f"{held.owner} holds it for worker, try 1, epoch {held.epoch}"
        hint = f"`tidemark workers evict {held.owner}` frees it"
        told = f"tidemark: Cannot take the lease of {pipeline.stream.name}: {found}; {hint}\n"
        assert (done.returncode, done.stderr) == (1, told)
        assert settled_nodes(pipeline) == before
        assert not pipeline.ledger(StreamLedger.is_lease_wanted)
        job.let_go()
        assert job.wait() == 0, job.log
    assert version_of(pipeline) == 1
    assert pipeline.run(SECOND) == [f"{SECOND} 1"]
    assert_each_record_once(pipeline)


@pytest.mark.parametrize("failpoint", ["consume.after_read", "commit.before_transaction"])
def test_a_job_that_a_switch_evicted_cannot_commit_and_every_record_is_there_once(
    clusters: TwoClusters, spark: SparkSession, tmp_path: Path, failpoint: Failpoint
) -> None:
    """It lives, renews its lease and does not answer. What only lacked its transaction is rolled forward."""
    pipeline, target = moving_pipeline(clusters, spark), clusters.topic(OTHER, 2)
    pipeline.run(FIRST)
    pipeline.topic.send(records(SECOND, 10, 2))
    commands = Commands(pipeline, clusters.environment(), tmp_path)
    where = ("--cluster", OTHER, "--topic", target.name, "--stable-for", "1s")
    task = Task(name="worker", attempt=1)
    armed = {failpoint: "wait"}
    with ConsumeJob(clusters.main, pipeline.stream, interval_of(SECOND), task, tmp_path / "job", armed) as job:
        job.wait_until_reached(failpoint)
        done = commands.run("switch", *where, "--evict", "--yes")
        assert done.returncode == 0, done.stderr
        assert "(worker) still has version 1: it cannot commit" in done.stdout
        assert (sorted(timelines_of(pipeline)), version_of(pipeline)) == ([1, 2], 2)
        switched = nodes_of(pipeline)
        assert job.process.poll() is None, job.log
        job.let_go()
        code = job.wait()
        if failpoint == "consume.after_read":
            assert (code != 0, "Fenced" in job.log) == (True, True), job.log
        assert nodes_of(pipeline) == switched
    assert_goes_on_whole(pipeline, target)


@pytest.mark.parametrize(("before", "after"), [(2, 2), (4, 6), (6, 4)])
def test_a_producer_that_never_pauses_moves_at_a_random_moment_and_every_record_is_there_once(
    clusters: TwoClusters, spark: SparkSession, before: int, after: int
) -> None:
    pipeline = moving_pipeline(clusters, spark, partitions=before, max_records=100_000)
    target = clusters.topic(OTHER, after)
    moves_at = time.monotonic() + random.uniform(0, 20)
    over = threading.Event()
    hours = [Hour(FIRST.start_ms + n * HOUR_MS) for n in range(3)]

    def write() -> None:
        number = 0
        while not over.is_set():
            topic = pipeline.topic if time.monotonic() < moves_at else target
            batch = range(number, number + 50)
            topic.send(
                Sent(
                    partition=n % topic.partitions,
                    time_ms=hours[n % 3].start_ms + n % HOUR_MS,
                    value=f"line {n}".encode(),
                )
                for n in batch
            )
            number += 50

    # A topic that was just made may have no leaders yet; once something is written it has.
    pipeline.topic.send(records(FIRST, before, before))
    writer = threading.Thread(target=write)
    writer.start()
    try:
        pipeline.run(FIRST)

        def is_switched() -> bool:
            try:
                switch(pipeline, target, stable_s=1.0)
            except TidemarkError as error:
                if "did not stand still" not in str(error):
                    raise
                return False
            return True

        wait_until(is_switched, "the producer has moved", within_s=180)
        pipeline.run(SECOND)
    finally:
        over.set()
        writer.join()
    pipeline.run(THIRD)
    assert len(completed_shards(pipeline)) == before
    assert_each_record_once(pipeline, target)
    everything = [*pipeline.topic.read_all(), *target.read_all()]
    for hour in hours:
        flags = {layout.revision_of_flag(path): path for path, _ in walk(pipeline.storage, layout.hour_folder(hour))}
        flag = read_json(pipeline.storage, flags[max(revision for revision in flags if revision)])
        wanted = sum(1 for _, _, when, _ in everything if hour.start_ms <= when < hour.end_ms)
        assert flag["counts"]["lines"] == wanted > 0
