"""A driver that dies, stops or is not alone at any step: what follows is as if nothing had happened.

Each job here is a process of its own against real ZooKeeper, Kafka and HDFS. A disturbed stream and its undisturbed
twin consume the same topic and begin with byte-for-byte copies of one ledger, so that they have the same frozen
shift, time of planning included: their files, manifests and nodes can be compared to the last byte.
"""

import json
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.faults import HOUR, INTERVAL, PARTITIONS, Faults, Left, records
from tests.services import KafkaTopic, unique
from tests.waiting import wait_until

from tidemark.config import Stream
from tidemark.failpoints import FAILPOINTS, Failpoint
from tidemark.stack import Stack

# Each job is mostly one JVM that starts; the test itself needs a core, too, and some jobs only wait.
JOBS_AT_ONCE = 3
SHIFT = f"/shifts/{INTERVAL.shift}"


class Start(Enum):
    """What a job finds."""

    NOTHING = "a stream that was never planned"
    PLANNED = "a frozen shift"
    PENDING = "a shift whose driver died when it had marked it PENDING"
    DAMAGED = "the same, but one of its files is lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    start: Start
    also: Mapping[Failpoint, str] = field(default_factory=dict)
    exit_code: int = -signal.SIGKILL


# A renewal comes every ten seconds: the job waits for it before it reads.
_RENEWING = Case(start=Start.PLANNED, also={"consume.before_read": "wait"})
# Only the task's worker dies, in a Spark without further tries: its driver ends by itself.
_IN_A_TASK = Case(start=Start.PLANNED, exit_code=1)
CASES: Mapping[Failpoint, Case] = {
    "lease.before_take": Case(start=Start.NOTHING),
    "lease.after_take": Case(start=Start.NOTHING),
    "lease.before_renewal": _RENEWING,
    "lease.after_renewal": _RENEWING,
    "lease.before_release": Case(start=Start.PENDING),
    "lease.after_release": Case(start=Start.PENDING),
    "plan.before_transaction": Case(start=Start.NOTHING),
    "plan.after_transaction": Case(start=Start.NOTHING),
    "consume.task_writing": _IN_A_TASK,
    "consume.task_wrote_files": _IN_A_TASK,
    # From PENDING on a first driver and one that rolls forward take the same steps, the latter without Spark.
    "commit.after_moves": Case(start=Start.PENDING),
    "commit.after_blocks": Case(start=Start.PENDING),
    "commit.after_discard": Case(start=Start.PENDING),
    "commit.before_transaction": Case(start=Start.PENDING),
    "recover.before_adopt": Case(start=Start.PENDING),
    "recover.after_adopt": Case(start=Start.PENDING),
    "recover.before_rollback": Case(start=Start.DAMAGED),
    "recover.after_rollback": Case(start=Start.DAMAGED),
}
_OTHERS = Case(start=Start.PLANNED)
_DRIVERS = ("lease", "plan", "consume", "commit", "recover")
OF_A_DRIVER = tuple(name for name in FAILPOINTS if name.partition(".")[0] in _DRIVERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    stream: Stream
    reached: list[str]
    exit_code: int
    log: str


class Twins:
    """The undisturbed run, and the states that disturbed ones begin with: all from one plan."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        twin = faults.stream()
        faults.plan(twin)
        self.planned = faults.look(twin)
        faults.consume(twin)
        self.undisturbed = faults.outcome(twin)
        self.expected_lines = faults.expected_lines()

    def kill(
        self, left: Left | None, failpoint: Failpoint, also: Mapping[Failpoint, str] | None = None, attempt: int = 2
    ) -> Killed:
        stream = self.faults.stream(left)
        with self.faults.job(stream, {failpoint: "kill", **(also or {})}, attempt=attempt) as job:
            exit_code = job.wait()
            return Killed(stream=stream, reached=job.reached, exit_code=exit_code, log=job.log)

    def leave_pending(self) -> Left:
        return self.faults.look(self.kill(self.planned, "commit.after_pending", attempt=1).stream)


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
            return twins.kill(_left_for(case.start, twins.planned, pending), failpoint, case.also)

        yield {
            failpoint: threads.submit(kill, failpoint, CASES.get(failpoint, _OTHERS))
            for failpoint in FAILPOINTS
            if failpoint in asked
        }
        threads.shutdown(cancel_futures=True)


def _left_for(start: Start, planned: Left, pending: Future[Left]) -> Left | None:
    if start is Start.NOTHING:
        return None
    if start is Start.PLANNED:
        return planned
    if start is Start.PENDING:
        return pending.result()
    files = dict(pending.result().files)
    del files[next(path for path in files if path.endswith(".bm"))]
    return replace(pending.result(), files=files)


def assert_undisturbed(faults: Faults, stream: Stream, wanted: Left, lines: list[tuple[int, bytes]]) -> None:
    found = faults.outcome(stream)
    assert found.nodes == wanted.nodes
    assert sorted(found.files) == sorted(wanted.files)
    assert found.files == wanted.files
    assert faults.lines(stream) == lines
    assert faults.storage(stream).list("_tmp") == []


@pytest.mark.parametrize("failpoint", OF_A_DRIVER)
def test_a_driver_killed_at_any_step_is_followed_by_one_that_ends_as_if_nothing_had_happened(
    faults: Faults, twins: Twins, kills: Mapping[Failpoint, Future[Killed]], failpoint: Failpoint
) -> None:
    case = CASES.get(failpoint, _OTHERS)
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


@pytest.mark.parametrize("step", ["consume.after_read", "commit.after_pending", "commit.before_transaction"])
def test_a_zombie_that_wakes_after_its_lease_was_taken_changes_nothing(
    faults: Faults, twins: Twins, step: Failpoint
) -> None:
    stream = faults.stream(twins.planned)
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
