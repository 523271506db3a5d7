"""An archiver that is killed at any step: every line stays readable once, and what follows ends with the same bytes.

Each one is a process of its own, `tidemark archive repair`, which does what a job does without a Spark to start.
"""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.archive import HOUR, Line, Rig, cut, decode, lines, new_rig, streams_file
from tests.commands import tidemark
from tests.waiting import wait_until

from tidemark import failpoints, layout
from tidemark.boom.format import header_of
from tidemark.failpoints import FAILPOINTS, Failpoint
from tidemark.names import Task
from tidemark.stack import Stack

ARCHIVER: Sequence[Failpoint] = [name for name in FAILPOINTS if name.startswith("archive.")]
ON_DAMAGE = ("archive.after_gap", "archive.after_set_aside")
SIZE = {"archive": {"target_size": "1kB"}}


def fill(rig: Rig) -> list[Line]:
    """Two shifts; a third brings late lines when the first two are archived."""
    first, second, late = lines(60, 0), lines(50, 1000), lines(30, 2000)
    rig.commit(1, {"0001-0": rig.boom(1, cut(first, 10)), "0001-1": rig.boom(1, cut(second, 10), "0001-1", 1)})
    rig.archive()
    last = rig.boom(2, [lines(5, 3000)], "0001-1", 1)
    rig.commit(2, {"0001-0": rig.boom(2, cut(late, 10), first=60), "0001-1": last})
    return sorted(first + second + late + lines(5, 3000))


def damage(rig: Rig) -> list[Line]:
    path = rig.path(2, "0001-1", 1)
    data = rig.storage.read(path)
    rig.storage.delete(path)
    rig.storage.create(path, data[:-1] + b"x")
    return lines(5, 3000)


def kill(rig: Rig, failpoint: Failpoint, folder: Path) -> list[str]:
    """The failpoints that were reached."""
    witness = folder / "witness"
    environment = {
        **rig.stack.environment(),
        "TIDEMARK_STREAMS": str(streams_file(rig, folder)),
        "TIDEMARK_FAILPOINT": f"{failpoint}=kill",
        "TIDEMARK_FAILPOINT_WITNESS": str(witness),
    }
    done = tidemark("archive", "repair", rig.stream.name, "--yes", environment=environment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return witness.read_text().split()


def retry(rig: Rig) -> Task:
    """Does not wait until the session of the one that died expires."""
    return Task(name=f"tidemark archive repair {rig.stream.name}", attempt=2)


def targets(rig: Rig) -> dict[str, bytes]:
    """What readers get: the times of two runs differ, in the index."""
    return {path: rig.storage.read(path) for path in rig.visible()}


@pytest.mark.parametrize("failpoint", ARCHIVER)
def test_an_archiver_killed_at_any_step_loses_and_doubles_nothing_and_the_next_one_ends_with_the_same_bytes(
    stack: Stack, tmp_path: Path, failpoint: Failpoint
) -> None:
    rig, twin = (new_rig(stack, tmp_path.as_uri(), **SIZE) for _ in range(2))
    expected, lost = fill(rig), list[Line]()
    fill(twin)
    if failpoint in ON_DAMAGE:
        lost = damage(rig)
        damage(twin)
    twin.archive()
    assert failpoint in kill(rig, failpoint, tmp_path)
    if not lost:
        assert rig.readable() == expected
    rig.archive(retry(rig))
    assert targets(rig) == targets(twin)
    assert {line for path in rig.visible() for line in decode(rig.storage.read(path))} == set(expected) - set(lost)
    assert replace(rig.record(), lease=None) == replace(twin.record(), lease=None)
    assert (rig.record().archiving, rig.record().dirty) == (None, ())
    assert rig.storage.list(layout.incoming_folder(HOUR)) == []
    assert rig.storage.list("_tmp") == []


def test_a_zombie_that_wakes_when_another_has_archived_its_hour_changes_nothing(stack: Stack, tmp_path: Path) -> None:
    rig = new_rig(stack, tmp_path.as_uri(), **SIZE)
    expected = fill(rig)
    witness = tmp_path / "witness"
    environment = {
        **rig.stack.environment(),
        "TERM": "dumb",
        "TIDEMARK_STREAMS": str(streams_file(rig, tmp_path)),
        "TIDEMARK_FAILPOINT": "archive.after_join=wait",
        "TIDEMARK_FAILPOINT_WITNESS": str(witness),
    }
    command = [sys.executable, "-c", "from tidemark.cli.main import main; main()", "archive", "repair", rig.stream.name]
    zombie = subprocess.Popen([*command, "--yes"], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(witness.exists, "the zombie has joined its targets", within_s=120)
        assert rig.archive(retry(rig)) == [HOUR]
        before, record = rig.files(), rig.record()
        witness.unlink()
        _, told = zombie.communicate(timeout=120)
        assert zombie.returncode == 1
        assert "lease" in told
    finally:
        with suppress(ProcessLookupError):
            zombie.kill()
        zombie.wait()
    assert rig.files() == before
    assert rig.record() == record
    assert rig.readable() == expected


class Crash(BaseException):
    """Goes through every handler, as a power cut does."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield (path := tmp_path_factory.mktemp("property"))
    shutil.rmtree(path)


sources = st.lists(
    st.tuples(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(0, 3000)), min_size=1, max_size=4
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    shifts=st.lists(sources, min_size=1, max_size=3),
    size_kb=st.integers(1, 3),
    crashes=st.lists(st.integers(1, 60), max_size=4),
)
def test_whatever_the_sources_sizes_and_crashes_the_index_tiles_sources_and_targets_and_no_line_is_lost_or_doubled(
    stack: Stack, folder: Path, shifts: list[list[tuple[list[int], int]]], size_kb: int, crashes: list[int]
) -> None:
    rig = new_rig(stack, folder.as_uri(), archive={"target_size": f"{size_kb}kB"})
    expected: list[Line] = []
    tasks = iter(range(1, 100))
    for number, files in enumerate(shifts, 1):
        expected += commit(rig, number, files)
        for crash in crashes:
            with crashing_after(crash):
                rig.archive(Task(name="archive", attempt=next(tasks)))
            assert rig.readable() == sorted(expected)
        rig.archive(Task(name="archive", attempt=next(tasks)))
        assert rig.readable() == sorted(expected)
        assert sorted(line for path in rig.visible() for line in decode(rig.storage.read(path))) == sorted(expected)
    assert_tiled(rig)
    assert rig.storage.list(layout.incoming_folder(HOUR)) == []


def commit(rig: Rig, number: int, files: list[tuple[list[int], int]]) -> list[Line]:
    booms, written = {}, list[Line]()
    for index, (blocks, start) in enumerate(files):
        shard = f"0001-{index}"
        found = [lines(count, start + position * 100, size=10) for position, count in enumerate(blocks)]
        booms[shard] = rig.boom(number, found, shard, index)
        written += [line for block in found for line in block]
    rig.commit(number, booms)
    return written


class crashing_after:  # noqa: N801 - read as a sentence
    """The archiver's process ends when it has reached so many of its steps."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def __enter__(self) -> None:
        armed: Mapping[str, object] = dict.fromkeys(ARCHIVER, self._reach)
        failpoints._armed.cache_clear()
        self._before = failpoints._armed
        failpoints._armed = lambda: armed  # type: ignore[assignment]

    def _reach(self, _: str) -> None:
        self._left -= 1
        if self._left == 0:
            raise Crash

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        failpoints._armed = self._before
        return kind is Crash


def assert_tiled(rig: Rig) -> None:
    """Each target by pieces without a hole, each source once and whole, and in the order of time."""
    rows = rig.index()
    for path, data in targets(rig).items():
        pieces = sorted((row for row in rows if row["destFile"] == path), key=lambda row: row["destFileStartOffset"])
        edges = [len(header_of(path)), *(row["destFileEndOffset"] for row in pieces)]
        assert [row["destFileStartOffset"] for row in pieces] == edges[:-1]
        assert edges[-1] == len(data)
    for source in {row["srcFile"] for row in rows}:
        pieces = sorted((row for row in rows if row["srcFile"] == source), key=lambda row: row["srcFileStartOffset"])
        edges = [len(header_of(source)), *(row["srcFileEndOffset"] for row in pieces)]
        assert [row["srcFileStartOffset"] for row in pieces] == edges[:-1]
    assert {row["destFile"] for row in rows} == set(targets(rig))
