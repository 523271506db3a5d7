"""Services that go away under the archiver: an error at most, never a gap, and the same bytes in the end."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.archive import HOUR, Rig, cut, decode, lines, new_rig, streams_file

from tidemark import failpoints, layout
from tidemark.environment import repository_folder
from tidemark.errors import TidemarkError
from tidemark.failpoints import Failpoint
from tidemark.names import Task
from tidemark.stack import Stack
from tidemark.stack.processes import plain_environment

SIZE = {"archive": {"target_size": "1kB"}}
RETRY = Task(name="archive", attempt=2)


def fill(rig: Rig) -> list[tuple[int, bytes]]:
    first, second = lines(60, 0), lines(50, 1000)
    rig.commit(1, {"0001-0": rig.boom(1, cut(first, 10)), "0001-1": rig.boom(1, cut(second, 10), "0001-1", 1)})
    return sorted(first + second)


@contextmanager
def at(step: Failpoint, act: Callable[[], None]) -> Iterator[None]:
    """Do it once, when the archiver reaches the step."""
    left = [act]

    def reach(_: str) -> None:
        if left:
            left.pop()()

    before = failpoints._armed
    failpoints._armed = lambda: {step: reach}  # type: ignore[assignment]
    try:
        yield
    finally:
        failpoints._armed = before


def assert_as_if_nothing_had_happened(rig: Rig, twin: Rig, expected: list[tuple[int, bytes]]) -> None:
    assert rig.readable() == expected
    assert rig.record().gaps == ()
    assert {path: rig.storage.read(path) for path in rig.visible()} == {
        path: twin.storage.read(path) for path in twin.visible()
    }
    assert sorted(line for path in rig.visible() for line in decode(rig.storage.read(path))) == expected
    assert rig.storage.list(layout.incoming_folder(HOUR)) == []
    assert rig.storage.list("_tmp") == []


@pytest.fixture
def rigs(stack: Stack) -> tuple[Rig, Rig, list[tuple[int, bytes]]]:
    """A stream to disturb, and its twin that nothing disturbs."""
    rig, twin = (new_rig(stack, "hdfs:///archive", **SIZE) for _ in range(2))
    expected = fill(rig)
    fill(twin)
    twin.archive()
    return rig, twin, expected


@pytest.mark.parametrize(
    ("step", "exit_code"), [("archive.task_writing", 1), ("archive.after_index", -9), ("archive.after_archived", -9)]
)
def test_a_spark_job_that_is_killed_is_followed_by_one_that_ends_with_the_same_bytes(
    rigs: tuple[Rig, Rig, list[tuple[int, bytes]]], tmp_path: Path, step: Failpoint, exit_code: int
) -> None:
    rig, twin, expected = rigs
    witness = tmp_path / "witness"
    kill = {"TIDEMARK_FAILPOINT": f"{step}=kill", "TIDEMARK_FAILPOINT_WITNESS": str(witness)}
    assert run_job(rig, tmp_path, attempt=1, environment=kill) == exit_code
    assert step in witness.read_text()
    assert rig.readable() == expected
    assert run_job(rig, tmp_path, attempt=2, environment={}) == 0
    assert_as_if_nothing_had_happened(rig, twin, expected)


def run_job(rig: Rig, folder: Path, attempt: int, environment: dict[str, str]) -> int:
    """jobs/archive.py as a process of its own, with a Spark of its own."""
    job = str(repository_folder() / "jobs" / "archive.py")
    command = [sys.executable, job, "--stream", rig.stream.name, "--task", "job", "--attempt", str(attempt)]
    settings = {
        **plain_environment(),
        **rig.stack.environment(),
        "PYSPARK_SUBMIT_ARGS": "--master local[2] pyspark-shell",
        "TIDEMARK_STREAMS": str(streams_file(rig, folder)),
        **environment,
    }
    return subprocess.run(command, env=settings, check=False, timeout=300).returncode


@pytest.mark.parametrize("service", ["zookeeper", "namenode", "datanode"])
@pytest.mark.parametrize("step", ["archive.after_plan", "archive.after_index", "archive.after_archived"])
def test_a_service_that_restarts_under_the_archiver_is_at_most_a_reason_to_try_again(
    rigs: tuple[Rig, Rig, list[tuple[int, bytes]]], stack: Stack, service: str, step: Failpoint
) -> None:
    rig, twin, expected = rigs

    def restart() -> None:
        stack.kill(service)
        stack.start(service)

    with at(step, restart):
        try:
            rig.archive()
        except TidemarkError:
            assert rig.readable() == expected
            rig.archive(RETRY)
    assert_as_if_nothing_had_happened(rig, twin, expected)


@pytest.mark.parametrize("step", ["archive.after_plan", "archive.after_targets"])
def test_a_datanode_that_is_gone_fails_the_archiver_and_a_later_try_succeeds(
    rigs: tuple[Rig, Rig, list[tuple[int, bytes]]], stack: Stack, step: Failpoint
) -> None:
    rig, twin, expected = rigs
    try:
        with at(step, lambda: stack.kill("datanode")), pytest.raises(TidemarkError):
            rig.archive()
    finally:
        stack.start("datanode")
    assert rig.record().gaps == ()
    assert rig.readable() == expected
    rig.archive(RETRY)
    assert_as_if_nothing_had_happened(rig, twin, expected)


def test_a_full_disk_fails_the_archiver_in_clear_words_and_a_later_try_succeeds(stack: Stack, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    try:
        rig, twin = new_rig(stack, disk.as_uri(), **SIZE), new_rig(stack, tmp_path.as_uri(), **SIZE)
        expected = fill(rig)
        fill(twin)
        twin.archive()
        (disk / "full").write_bytes(bytes(_free(disk)))
        with pytest.raises(TidemarkError, match="No space left on device"):
            rig.archive()
        assert rig.readable() == expected
        (disk / "full").unlink()
        rig.archive(RETRY)
        assert_as_if_nothing_had_happened(rig, twin, expected)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
