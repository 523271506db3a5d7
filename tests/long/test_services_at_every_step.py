"""Each service crashes and comes back while drivers stand at every step there is: at most a reason to try again."""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from pyspark.sql import SparkSession
from tests.faults import (
    OF_A_DRIVER,
    PARTITIONS,
    Faults,
    Left,
    Start,
    Twins,
    assert_undisturbed,
    case_of,
    left_for,
    records,
)
from tests.jobs import ConsumeJob
from tests.services import KafkaTopic, unique
from tests.waiting import wait_until

from tidemark import failpoints
from tidemark.config import Stream
from tidemark.failpoints import FAILPOINTS, Failpoint
from tidemark.stack import Stack

# Reached in a thread or a process that the driver starts: these have a job of their own, all others a thread of ours.
ELSEWHERE: tuple[Failpoint, ...] = (
    "lease.before_renewal",
    "lease.after_renewal",
    "consume.task_writing",
    "consume.task_wrote_files",
)
HERE = tuple(step for step in OF_A_DRIVER if step not in ELSEWHERE)


@dataclass
class Standstill:
    """Drivers in threads of this process: each stands still at its own step, once, until all may go on."""

    arrived: set[str] = field(default_factory=set)
    go_on: threading.Event = field(default_factory=threading.Event)
    _own: threading.local = field(default_factory=threading.local)

    def run(self, faults: Faults, stream: Stream, step: Failpoint) -> None:
        self._own.step = step
        faults.consume(stream, attempt=2)

    def stand_still(self, step: str) -> None:
        if getattr(self._own, "step", None) == step and step not in self.arrived:
            self.arrived.add(step)
            assert self.go_on.wait(600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbed:
    stream: Stream
    was_reached: bool
    problem: str | None


@pytest.fixture(scope="module")
def faults(stack: Stack, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Faults:
    topic = KafkaTopic(stack, unique("fault"), PARTITIONS)
    topic.send(records())
    return Faults(stack=stack, spark=spark, topic=topic, folder=tmp_path_factory.mktemp("jobs"))


@pytest.fixture(scope="module")
def twins(faults: Faults) -> Twins:
    return Twins(faults)


@pytest.fixture(scope="module")
def pending(twins: Twins) -> Left:
    return twins.leave_pending()


@pytest.fixture(scope="module", params=["zookeeper", "kafka", "namenode", "datanode"])
def disturbed(
    request: pytest.FixtureRequest, faults: Faults, twins: Twins, pending: Left
) -> Iterator[Mapping[Failpoint, Disturbed]]:
    """All steps at once: one crash serves them all."""
    streams = {step: faults.stream(left_for(case_of(step).start, twins, lambda: pending)) for step in OF_A_DRIVER}
    standstill = Standstill()
    with pytest.MonkeyPatch.context() as patched, ExitStack() as jobs, ThreadPoolExecutor(len(HERE)) as threads:
        patched.setattr(failpoints, "_armed", lambda: dict.fromkeys(FAILPOINTS, standstill.stand_still))
        elsewhere = {
            step: jobs.enter_context(faults.job(streams[step], {step: "wait", **case_of(step).also}))
            for step in ELSEWHERE
        }
        here = {step: threads.submit(standstill.run, faults, streams[step], step) for step in HERE}
        try:
            # A driver that ended without its step would be waited for in vain: its test tells.
            wait_until(lambda: all(step in standstill.arrived or here[step].done() for step in HERE), "every step")
            for step, job in elsewhere.items():
                job.wait_until_reached(step)
            faults.stack.kill(request.param)
            faults.stack.start(request.param)
        finally:
            standstill.go_on.set()
            for job in elsewhere.values():
                job.go_on()
        problems = {step: _problem_here(ended) for step, ended in here.items()}
        problems |= {step: _problem_elsewhere(job) for step, job in elsewhere.items()}
        yield {
            step: Disturbed(
                stream=streams[step], was_reached=step in (*standstill.arrived, *ELSEWHERE), problem=problems[step]
            )
            for step in OF_A_DRIVER
        }


def _problem_here(ended: Future[None]) -> str | None:
    error = ended.exception()
    return f"{type(error).__name__}: {error}" if error else None


def _problem_elsewhere(job: ConsumeJob) -> str | None:
    def has_ended() -> bool:
        # Whatever comes to the step later stops there as well.
        job.let_go()
        return job.process.poll() is not None

    wait_until(has_ended, "the job ends")
    return job.log if job.process.returncode else None


@pytest.mark.parametrize("step", OF_A_DRIVER)
def test_a_service_that_crashes_and_comes_back_at_any_step_is_at_most_a_reason_to_try_again(
    faults: Faults, twins: Twins, disturbed: Mapping[Failpoint, Disturbed], step: Failpoint
) -> None:
    found = disturbed[step]
    assert found.was_reached, found.problem
    if found.problem:
        assert "DataLoss" not in found.problem, "a service that was away is no lost record"
        faults.consume(found.stream, attempt=3)
    if case_of(step).start is not Start.NOTHING:
        assert_undisturbed(faults, found.stream, twins.undisturbed, twins.expected_lines)
        return
    # Planned at a time of its own, so that its bytes are its own, too.
    left = faults.outcome(found.stream)
    assert sorted(left.files) == sorted(twins.undisturbed.files)
    assert left.nodes["/head"] == twins.undisturbed.nodes["/head"]
    assert faults.lines(found.stream) == twins.expected_lines
