"""What is lost, given up, accepted or archived again around the moment of flagging: a real ZooKeeper, local files."""

from pathlib import Path

import pytest
from tests.archive import HOUR, TASK, Rig, cut, lines, new_rig
from tests.services import KafkaTopic, connections_of, read_json

from tidemark import layout
from tidemark.drive.acts import accept_hour
from tidemark.drive.publish import publish_stream
from tidemark.drive.rebuild import rebuild_stream
from tidemark.ledger import paths
from tidemark.ledger.records import HourState
from tidemark.ledger.stream import StreamLedger
from tidemark.names import DAY_MS, Hour, Task
from tidemark.publish.sweep import Publisher
from tidemark.stack import Stack

OPERATOR = Task(name="operator", attempt=1)


class Died(BaseException):
    """Goes through every handler, as a power cut does."""


@pytest.fixture
def rig(stack: Stack, tmp_path: Path) -> Rig:
    """A shift with a file in each of two shards is committed and not archived."""
    rig = new_rig(stack, tmp_path.as_uri())
    KafkaTopic(stack, rig.stream.topic, 1)
    rig.commit(1, {"0001-0": rig.boom(1, cut(lines(30), 10)), "0001-1": rig.boom(1, [lines(5, 1000)], "0001-1", 1)})
    return rig


def publish(rig: Rig) -> list[tuple[str, int]]:
    swept = publish_stream(rig.stream, connections_of(rig.stack), TASK)
    return [(flag.subject, flag.revision) for flag in swept.published]


def decide_and_die(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(Publisher, "_place", die)
        with pytest.raises(Died):
            publish(rig)
    assert rig.record().publishing


def files_of(rig: Rig, revision: int) -> list[str]:
    return [file["path"] for file in read_json(rig.storage, layout.hour_flag(HOUR, revision))["files"]]


def test_a_target_that_is_archived_again_while_its_flag_is_decided_comes_with_the_next_revision(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {path: data for path, data in rig.files().items() if "/_incoming/" in path}
    rig.archive()
    decide_and_die(rig, monkeypatch)
    (lost,) = rig.visible()
    rig.storage.delete(lost)
    for path, data in sources.items():
        rig.storage.create(path, data)
    rig.archive()
    assert publish(rig) == [(str(HOUR), 1)]
    assert files_of(rig, 1) == [lost]
    assert publish(rig) == [(str(HOUR), 2)]
    assert files_of(rig, 2) == rig.visible()
    assert lost not in rig.visible()
    assert rig.record().unflagged == ()
    assert publish(rig) == []


def test_a_file_that_is_restored_while_the_flag_without_it_is_decided_comes_with_the_next_revision(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = give_up(rig)
    accept_hour(rig.stream, HOUR, "nobody misses it", connections_of(rig.stack), OPERATOR)
    decide_and_die(rig, monkeypatch)
    rig.storage.create(path, rig.boom(1, [lines(5, 1000)], "0001-1", 1).data)
    with rig.ledger() as ledger:
        ledger.add_dirty(HOUR, 1)
    rig.archive()
    assert publish(rig) == [(str(HOUR), 1)]
    assert publish(rig) == [(str(HOUR), 2)]
    assert files_of(rig, 2) == rig.visible()
    assert len(files_of(rig, 2)) == len(files_of(rig, 1)) + 1


def give_up(rig: Rig) -> str:
    """The second file is gone, and the first one archived."""
    path = rig.path(1, "0001-1", 1)
    rig.storage.delete(path)
    rig.archive()
    assert [gap.file for gap in rig.record().gaps] == [path]
    return path


def lose_the_ledger(rig: Rig) -> None:
    with rig.ledger() as ledger:
        ledger.client.delete(paths.stream(rig.stream.name), recursive=True)
    rebuild_stream(rig.stream, connections_of(rig.stack), OPERATOR)


def test_the_acceptance_of_a_file_that_is_gone_outlives_the_ledger(rig: Rig) -> None:
    give_up(rig)
    accept_hour(rig.stream, HOUR, "nobody misses it", connections_of(rig.stack), OPERATOR)
    before = rig.record()
    lose_the_ledger(rig)
    after = rig.record()
    assert after.gaps == before.gaps
    assert (after.dirty, after.unflagged, after.archives) == ((), (1,), 1)
    assert rig.archive() == []
    assert publish(rig) == [(str(HOUR), 1)]
    flagged = read_json(rig.storage, layout.hour_flag(HOUR, 1))["gaps"]
    assert [gap["accepted"] for gap in flagged] == ["nobody misses it"]
    lose_the_ledger(rig)
    assert (rig.record().gaps, rig.record().unflagged) == (before.gaps, ())
    assert publish(rig) == []


def test_a_file_that_is_gone_and_was_not_accepted_holds_its_hour_when_the_ledger_was_lost(rig: Rig) -> None:
    give_up(rig)
    accept_hour(rig.stream, HOUR, "nobody misses it", connections_of(rig.stack), OPERATOR)
    rig.commit(3, {"0001-1": rig.boom(3, [lines(5, 2000)], "0001-1", first=5)})
    (late,) = (path for path in rig.files() if "/_incoming/" in path)
    rig.storage.delete(late)
    rig.archive()
    lose_the_ledger(rig)
    rig.archive()
    assert {gap.file: gap.accepted for gap in rig.record().gaps} == {
        rig.path(1, "0001-1", 1): "nobody misses it",
        late: None,
    }
    assert publish(rig) == []


def test_an_archive_run_reads_open_and_recent_days_and_finds_what_is_restored_in_others(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = give_up(rig)
    accept_hour(rig.stream, HOUR, "nobody misses it", connections_of(rig.stack), OPERATOR)
    publish(rig)
    old = [Hour(HOUR.start_ms - days * DAY_MS) for days in range(20, 25)]
    for hour in old:
        with rig.ledger() as ledger:
            ledger.save_hour("archive", hour, ledger.hour(hour), rig.record())
            ledger.client.delete(paths.open_day(rig.stream.name, hour.day))
    asked: list[Hour] = []
    read = StreamLedger.hour

    def hour_of(ledger: StreamLedger, hour: Hour) -> object:
        asked.append(hour)
        return read(ledger, hour)

    with rig.archiver() as archiver, monkeypatch.context() as patched:
        patched.setattr(StreamLedger, "hour", hour_of)
        assert archiver.waiting() == []
    assert set(asked) == {HOUR}
    with rig.ledger() as ledger:
        ledger.add_dirty(old[0], 1)
    with rig.archiver() as archiver:
        assert archiver.waiting() == [old[0]]
    rig.storage.create(path, b"restored")
    with rig.archiver() as archiver:
        assert archiver.waiting() == [old[0], HOUR]
    assert rig.record().state is HourState.READY
