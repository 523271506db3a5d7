"""A driver that dies, stops or is not alone at any step: what follows is as if nothing had happened.

Each job here is a process of its own against real ZooKeeper, Kafka and HDFS. A disturbed stream and its undisturbed
twin consume the same topic and begin with byte-for-byte copies of one ledger, so that they have the same frozen
shift, time of planning included: their files, manifests and nodes can be compared to the last byte.
"""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.faults import (
    HOUR,
    INTERVAL,
    OF_A_DRIVER,
    PARTITIONS,
    Case,
    Faults,
    Killed,
    Left,
    Start,
    Twins,
    assert_undisturbed,
    case_of,
    left_for,
    records,
)
from tests.services import KafkaTopic, unique
from tests.waiting import wait_until

from tidemark.failpoints import FAILPOINTS, Failpoint
from tidemark.stack import Stack

# Each job is mostly one JVM that starts; the test itself needs a core, too, and some jobs only wait.
JOBS_AT_ONCE = 3
SHIFT = f"/shifts/{INTERVAL.shift}"


@pytest.fixture(scope="module")
def faults(stack: Stack, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Faults:
    topic = KafkaTopic(stack, unique("fault"), PARTITIONS)
    topic.send(records())
    return Faults(stack=stack, spark=spark, topic=topic, folder=tmp_path_factory.mktemp("jobs"))


@pytest.fixture(scope="module")
def twins(faults: Faults) -> Twins:
    return Twins(faults)


@pytest.fixture(scope="module")
def kills(request: pytest.FixtureRequest, twins: Twins) -> Iterator[Mapping[Failpoint, Future[Killed]]]:
    """One killed job for each failpoint that is asked for, several at once; a test waits for its own."""
    asked = [item.callspec.params.get("failpoint") for item in request.session.items if hasattr(item, "callspec")]
    with ThreadPoolExecutor(max_workers=JOBS_AT_ONCE) as threads:
        pending = threads.submit(twins.leave_pending)

        def kill(failpoint: Failpoint, case: Case) -> Killed:
            return twins.kill(left_for(case.start, twins, pending.result), failpoint, case.also)

        yield {
            failpoint: threads.submit(kill, failpoint, case_of(failpoint))
            for failpoint in FAILPOINTS
            if failpoint in asked
        }
        threads.shutdown(cancel_futures=True)


@pytest.mark.parametrize("failpoint", OF_A_DRIVER)
def test_a_driver_killed_at_any_step_is_followed_by_one_that_ends_as_if_nothing_had_happened(
    faults: Faults, twins: Twins, kills: Mapping[Failpoint, Future[Killed]], failpoint: Failpoint
) -> None:
    case = case_of(failpoint)
    killed = kills[failpoint].result()
    assert failpoint in killed.reached, killed.log
    assert killed.exit_code == case.exit_code, killed.log
    wanted = twins.undisturbed
    if case.start is Start.NOTHING:
        faults.plan(killed.stream, attempt=3)
        planned = faults.look(killed.stream)
        assert _ranges(planned) == _ranges(twins.planned)
        twin = faults.stream(planned)
        faults.consume(twin, attempt=3)
        wanted = faults.outcome(twin)
    faults.consume(killed.stream, attempt=3)
    assert_undisturbed(faults, killed.stream, wanted, twins.expected_lines)


def _ranges(planned: Left) -> Any:
    return json.loads(planned.nodes[SHIFT])["shift"]["ranges"]


@pytest.mark.parametrize(
    "step", ["consume.after_read", "commit.after_pending", "commit.before_replacing", "commit.before_transaction"]
)
def test_a_zombie_that_wakes_after_its_lease_was_taken_changes_nothing(
    faults: Faults, twins: Twins, step: Failpoint
) -> None:
    stream = faults.stream(left_for(case_of(step).start, twins, twins.leave_pending))
    with faults.job(stream, {step: "stop"}) as zombie:
        zombie.wait_until_stopped(step)
        faults.consume(stream, attempt=3)
        zombie.go_on()
        assert zombie.wait() == 1
        assert "Fenced" in zombie.log
    assert_undisturbed(faults, stream, twins.undisturbed, twins.expected_lines)


def test_two_jobs_for_the_same_shift_at_once_do_the_work_once(faults: Faults, twins: Twins) -> None:
    stream = faults.stream(twins.planned)
    with faults.job(stream, {"consume.before_read": "wait"}, task="one") as first:
        first.wait_until_reached("consume.before_read")
        with faults.job(stream, {}, task="two") as second:
            wait_until(lambda: "two" in faults.tasks_at_work(), "the second job joins the workers")
            first.go_on()
            assert first.wait() == 0, first.log
            assert second.wait() == 0, second.log
            assert "is committed" in second.log
    assert_undisturbed(faults, stream, twins.undisturbed, twins.expected_lines)


def test_a_file_of_an_earlier_try_is_kept_when_it_has_the_same_bytes_and_replaced_when_not(
    faults: Faults, twins: Twins
) -> None:
    stream = faults.stream(twins.planned)
    storage = faults.storage(stream)
    same, other = [path for path in twins.undisturbed.files if f"{HOUR.hh}/_incoming" in path]
    storage.create(same, twins.undisturbed.files[same])
    storage.create(other, b"of an earlier try")
    kept = storage.status(same)
    faults.consume(stream, attempt=2)
    assert storage.status(same) == kept
    assert_undisturbed(faults, stream, twins.undisturbed, twins.expected_lines)
