"""Old days go from a list that was shown before, flags first, and stay known as expired."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests.archive import HOUR, Rig, cut, lines, new_rig, streams_file
from tests.commands import airflow_command, tidemark
from tests.services import connections_of

from tidemark import layout
from tidemark.drive.publish import publish_stream
from tidemark.drive.rebuild import rebuild_stream
from tidemark.drive.retain import list_old_days, remove_old_days
from tidemark.errors import NotFound, TidemarkError
from tidemark.ledger import paths
from tidemark.ledger.records import HourState, Positions, ShardPosition, dump
from tidemark.names import HOUR_MS, Day, Hour, Shard, Task, hours_of_day
from tidemark.publish.ask import ready_revision
from tidemark.stack import Stack
from tidemark.storage.local import LocalStorage

DAY = Day(HOUR.day)
FIRST = hours_of_day(HOUR.day)[0]
TASK = Task(name="retain", attempt=1)
Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def rig(stack: Stack, tmp_path: Path) -> Rig:
    """A day that is ready, and the next one, which is not old enough."""
    rig = new_rig(stack, tmp_path.as_uri(), retain="1d", skew={"past": "12h"})
    rig.commit(1, {"0001-0": rig.boom(1, cut(lines(30), 10))})
    rig.archive()
    reach(rig, days=2)
    publish_stream(rig.stream, connections_of(rig.stack), TASK)
    return rig


def reach(rig: Rig, days: int) -> None:
    """Everything is consumed up to so many days after the first hour."""
    position = ShardPosition(start=0, next=30, watermark_ms=FIRST.start_ms + days * 24 * HOUR_MS, digest=None)
    positions = Positions(start_ms=FIRST.start_ms, first_ms=FIRST.start_ms).with_shards({Shard(1, 0): position})
    with rig.ledger() as ledger:
        ledger.client.set(paths.positions(rig.stream.name), dump(positions))


@pytest.fixture
def run(rig: Rig, tmp_path: Path) -> Run:
    environment = {**rig.stack.environment(), "TIDEMARK_STREAMS": str(streams_file(rig, tmp_path))}
    return lambda *arguments: tidemark(*arguments, environment=environment)


def test_a_dry_run_removes_nothing_and_its_token_removes_exactly_what_it_listed(rig: Rig, run: Run) -> None:
    before = rig.files()
    shown = run("retain", rig.stream.name)
    assert shown.returncode == 0, shown.stderr
    listed, command = shown.stdout.splitlines()
    assert listed == f"{DAY} would be removed"
    assert rig.files() == before
    assert run("retain", rig.stream.name, "--execute", "0123", "--yes").returncode == 2
    asked = run(*command.split()[1:])
    assert (asked.returncode, "say --yes" in asked.stderr) == (2, True)
    assert asked.stdout.startswith("To be removed from ")
    both = run(*command.split()[1:], "--json", "--yes")
    assert (both.returncode, both.stdout, "only the list is JSON" in both.stderr) == (2, "", True)
    assert rig.files() == before
    listed_again = json.loads(run("retain", rig.stream.name, "--json").stdout)
    assert listed_again == {"token": command.split()[-1], "days": [{"day": str(DAY), "held": None, "goes": True}]}

    # The next day is old enough now, but no list has named it.
    reach(rig, days=4)
    done = run(*command.split()[1:], "--yes")
    announced, removed = done.stdout.splitlines()
    assert announced.endswith(f"with flags and files: {DAY}")
    assert removed == f"{rig.stream.name}/{DAY} is removed"
    assert [path for path in rig.files() if path.startswith(str(DAY))] == []
    tomorrow = str(Hour(HOUR.start_ms + 24 * HOUR_MS).day)
    assert {path: data for path, data in rig.files().items() if path.startswith(tomorrow)} == {
        path: data for path, data in before.items() if path.startswith(tomorrow)
    }
    flags = run("flags", rig.stream.name, str(DAY))
    assert flags.stdout.count("expired") == 24
    assert "expired" in run("why", rig.stream.name, str(HOUR)).stdout


def test_what_is_expired_is_neither_published_nor_archived_nor_waited_for(rig: Rig) -> None:
    remove(rig)
    assert publish_stream(rig.stream, connections_of(rig.stack), TASK).published == []
    assert rig.archive() == []
    with rig.ledger() as ledger:
        assert ready_revision(ledger.client, rig.stream.name, HOUR) == 0
        assert ready_revision(ledger.client, rig.stream.name, DAY) == 0
    assert rig.record().state is HourState.EXPIRED
    assert rig.storage.status(str(DAY)) is None


def remove(rig: Rig, *, force: bool = False) -> list[Day]:
    token = list_old_days(rig.stream, connections_of(rig.stack), TASK, force=force).token
    return remove_old_days(rig.stream, token or "", connections_of(rig.stack), TASK, force=force)


def test_a_day_that_is_not_ready_is_never_removed_without_force(rig: Rig) -> None:
    with rig.ledger() as ledger:
        ledger.add_dirty(HOUR, 1)
    listed = list_old_days(rig.stream, connections_of(rig.stack), TASK)
    assert [(old.day, old.held) for old in listed.days] == [(DAY, f"{HOUR} waits for its next revision")]
    assert listed.token is None
    assert remove(rig, force=True) == [DAY]


def test_a_day_that_changed_since_it_was_listed_stays(rig: Rig) -> None:
    token = list_old_days(rig.stream, connections_of(rig.stack), TASK).token
    assert token
    with rig.ledger() as ledger:
        ledger.add_dirty(HOUR, 1)
    before = rig.files()
    with pytest.raises(TidemarkError, match="waits for its next revision since it was listed"):
        remove_old_days(rig.stream, token, connections_of(rig.stack), TASK)
    assert rig.files() == before


def test_flags_go_first_and_the_same_token_finishes_what_a_crash_left(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = list_old_days(rig.stream, connections_of(rig.stack), TASK).token
    assert token
    delete = LocalStorage.delete

    def die(storage: LocalStorage, path: str, recursive: bool = False) -> bool:
        if recursive:
            raise KeyboardInterrupt
        return delete(storage, path, recursive)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "delete", die)
        with pytest.raises(KeyboardInterrupt):
            remove_old_days(rig.stream, token, connections_of(rig.stack), TASK)
    left = [path for path in rig.files() if path.startswith(str(DAY))]
    assert left
    assert not any("_READY" in path for path in left)
    assert remove_old_days(rig.stream, token, connections_of(rig.stack), TASK) == [DAY]
    assert rig.storage.status(str(DAY)) is None


def test_whoever_was_stopped_before_a_rename_brings_nothing_of_a_removed_day_back(rig: Rig) -> None:
    tomorrow = Hour(HOUR.start_ms + 24 * HOUR_MS)
    ours = [
        f"{layout.work_of_flag(str(HOUR), 2)}/abc",
        f"{layout.work_of_flag(str(DAY), 2)}/abc",
        f"{layout.work_of_archive(HOUR, 2)}/3/0/x.bm",
    ]
    others = [
        f"{layout.work_of_flag(str(tomorrow), 2)}/abc",
        f"{layout.work_of_flag(tomorrow.day, 2)}/abc",
        f"{layout.work_of_archive(tomorrow, 2)}/3/0/x.bm",
        f"{layout.work_of_shift('20261110T2200')}/3/0/x.bm",
    ]
    for path in (*ours, *others):
        rig.storage.create(path, b"at work")
    with rig.ledger() as ledger:
        ledger.add_dirty(HOUR, 1)
    assert remove(rig, force=True) == [DAY]
    for path in ours:
        with pytest.raises(NotFound):
            rig.storage.rename(path, layout.hour_flag(HOUR, 2))
    assert rig.storage.status(str(DAY)) is None
    assert [path for path in others if rig.storage.status(path)] == others


def test_a_day_that_was_removed_is_still_expired_when_zookeeper_has_lost_the_stream(rig: Rig) -> None:
    remove(rig)
    with rig.ledger() as ledger:
        known = ledger.day(str(DAY)).value
        ledger.client.delete(paths.stream(rig.stream.name), recursive=True)
    rebuild_stream(rig.stream, connections_of(rig.stack), TASK)
    with rig.ledger() as ledger:
        assert ledger.day(str(DAY)).value == known
        found = [ledger.hour(hour).value for hour in hours_of_day(str(DAY))]
    assert [(record.state, record.revision) for record in found] == [(HourState.EXPIRED, 1)] * 24


def test_the_daily_dag_removes_what_its_first_task_listed(rig: Rig, airflow_stack: Stack, tmp_path: Path) -> None:
    environment = {**airflow_stack.environment(), "TIDEMARK_STREAMS": str(streams_file(rig, tmp_path))}
    airflow_command("dags", "test", f"retain_{rig.stream.name}", environment=environment)
    assert rig.record().state is HourState.EXPIRED
    assert rig.storage.status(str(DAY)) is None
