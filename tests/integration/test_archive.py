"""The archiver on a real ZooKeeper, and on local files where HDFS makes no difference."""

import io
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.archive import HOUR, TASK, BoomFile, Rig, boom_file, cut, decode, lines, new_rig, streams_file
from tests.commands import tidemark
from tests.waiting import wait_until

from tidemark import layout
from tidemark.archive.here import Here
from tidemark.archive.leftovers import Leftovers
from tidemark.archive.spark import OverSpark
from tidemark.boom.format import BoomBlock, header_of
from tidemark.boom.reader import BoomReader
from tidemark.errors import CorruptFile, Fenced
from tidemark.ledger.hour_lease import HourLeases
from tidemark.ledger.lease import join_workers
from tidemark.names import Hour, Task
from tidemark.stack import Stack

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def rig(stack: Stack, tmp_path: Path) -> Rig:
    return new_rig(stack, tmp_path.as_uri(), archive={"target_size": "1kB"})


def fill(rig: Rig) -> list[tuple[int, bytes]]:
    """Two shifts, three files of several blocks each, so that sources span targets."""
    first, second, third = lines(60, 0), lines(50, 1000), lines(40, 2000)
    rig.commit(1, {"0001-0": rig.boom(1, cut(first, 10)), "0001-1": rig.boom(1, cut(second, 10), "0001-1", 1)})
    rig.commit(2, {"0001-0": rig.boom(2, cut(third, 10), first=60)})
    return sorted(first + second + third)


def assert_archived(rig: Rig, expected: list[tuple[int, bytes]]) -> None:
    """Every line once, index and files agree to the byte, nothing is left of the work."""
    record = rig.record()
    assert (record.dirty, record.archiving) == ((), None)
    assert rig.readable() == expected
    assert sorted(line for path in rig.visible() for line in decode(rig.storage.read(path))) == expected
    index = rig.index()
    for path in rig.visible():
        pieces = sorted((row for row in index if row["destFile"] == path), key=lambda row: row["destFileStartOffset"])
        assert pieces[0]["destFileStartOffset"] == len(header_of(path))
        assert all(a["destFileEndOffset"] == b["destFileStartOffset"] for a, b in pairwise(pieces))
        assert pieces[-1]["destFileEndOffset"] == len(rig.storage.read(path))
    assert rig.storage.list(layout.incoming_folder(HOUR)) == []
    assert rig.storage.list("_tmp") == []


def test_sources_are_joined_in_order_of_time_into_targets_of_the_size_asked_for(rig: Rig) -> None:
    expected = fill(rig)
    rig.archive()
    assert_archived(rig, expected)
    sizes = [len(rig.storage.read(path)) for path in rig.visible()]
    assert len(sizes) > 2
    assert all(1000 <= size < 1000 + 400 for size in sizes[:-1])
    spanning = {row["srcFile"] for row in rig.index() if row["srcFileStartOffset"] > len(header_of(""))}
    assert spanning
    record = rig.record()
    assert (record.unflagged, record.archives) == ((1, 2), 1)


def test_spark_joins_the_same_bytes_as_this_process(rig: Rig, stack: Stack, spark: SparkSession) -> None:
    expected = fill(rig)
    twin = new_rig(stack, "hdfs:///archive", archive={"target_size": "1kB"})
    fill(twin)
    rig.archive()
    with twin.archiver() as archiver:
        for hour in archiver.waiting():
            assert archiver.archive(hour, OverSpark(spark))
    assert_archived(twin, expected)
    assert {path: twin.storage.read(path) for path in twin.visible()} == {
        path: rig.storage.read(path) for path in rig.visible()
    }
    found = spark.read.json(twin.storage.uri(f"{HOUR.day}/_index"))
    assert found.count() == len(twin.index())
    assert found.agg({"lines": "sum"}).first() == (150,)


def test_a_damaged_source_is_set_aside_with_the_reason_and_is_a_gap_until_it_is_restored(rig: Rig) -> None:
    expected = fill(rig)
    path = rig.path(1, "0001-1", 1)
    whole = rig.storage.read(path)
    rig.storage.delete(path)
    rig.storage.create(path, whole[:-40] + bytes(40))
    rig.archive()
    (gap,) = rig.record().gaps
    assert (gap.file, gap.shard, gap.start, gap.end) == (path, "0001-1", 0, 50)
    assert rig.storage.read(f"_bad/{path}") == whole[:-40] + bytes(40)
    reason = json.loads(rig.storage.read(f"_bad/{path}.json"))
    assert "is not what it was" in reason["reason"]
    held = [row for row in rig.index() if row["srcFile"] == path]
    assert held == []

    before = {path: rig.storage.read(path) for path in rig.visible()}
    assert rig.archive() == []
    rig.storage.create(path, whole)
    assert rig.archive() == [HOUR]
    assert rig.record().gaps == ()
    assert_archived(rig, expected)
    assert {path: rig.storage.read(path) for path in before} == before


def test_a_source_that_vanished_is_a_gap_and_the_rest_is_archived(rig: Rig) -> None:
    expected = fill(rig)
    gone = rig.path(2, "0001-0")
    lost = decode(rig.storage.read(gone))
    rig.storage.delete(gone)
    rig.archive()
    assert [gap.file for gap in rig.record().gaps] == [gone]
    visible = sorted(line for path in rig.visible() for line in decode(rig.storage.read(path)))
    assert visible == sorted(set(expected) - set(lost))


def test_a_source_that_was_only_read_wrongly_is_not_given_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fill(rig)
    refuse = CorruptFile("Cannot copy: a cosmic ray")

    def corrupt(*_: object) -> bytes:
        raise refuse

    with monkeypatch.context() as patched:
        patched.setattr("tidemark.archive.join._checked", corrupt)
        with pytest.raises(CorruptFile, match="its digest is that of the manifest: try again"):
            rig.archive()
    assert rig.record().gaps == ()
    rig.archive()
    assert_archived(rig, expected)


def foreign_file(data: bytes, name: str) -> BoomFile:
    """Another writer's file with its block directory; offsets count its lines."""
    reader = BoomReader(io.BytesIO(data), name)
    blocks, offset = [], 0
    for block in reader.blocks():
        times = [log.second * 1000 + ms for log in reader.decode(block) for ms in log.milliseconds]
        blocks.append(
            BoomBlock(
                start=block.start,
                end=block.end,
                lines=len(times),
                runs=((offset, offset + len(times)),),
                min_ms=min(times),
                max_ms=max(times),
                crc=block.crc,
            )
        )
        offset += len(times)
    return BoomFile(data=data, blocks=tuple(blocks))


@pytest.mark.parametrize("name", ["logdriver-eventid.bm", "kaboom-ordered.bm"])
def test_a_file_of_another_writer_is_rewritten_and_not_mixed_in(rig: Rig, name: str) -> None:
    data = (GOLDEN / name).read_bytes()
    ours = lines(30)
    rig.commit(1, {"0001-0": rig.boom(1, cut(ours, 10)), "0001-1": foreign_file(data, name)})
    rig.archive()
    assert_archived(rig, sorted(ours + decode(data)))
    for target in rig.visible():
        assert rig.storage.read(target).startswith(header_of(target))
    rewritten = [row for row in rig.index() if row["rewritten"]]
    assert {row["srcFile"] for row in rewritten} == {rig.path(1, "0001-1", 1)}
    assert sum(row["lines"] for row in rewritten) == len(decode(data))


def test_a_file_that_no_manifest_names_is_told_and_left_alone(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    expected = fill(rig)
    stranger = layout.incoming(HOUR, "stranger.bm")
    visible = layout.archived(HOUR, "of-somebody.bm")
    rig.storage.create(stranger, b"not ours")
    rig.storage.create(visible, b"not ours either")
    rig.archive()
    assert rig.storage.read(stranger) == b"not ours"
    assert rig.storage.read(visible) == b"not ours either"
    assert rig.readable() == expected
    assert f"{stranger} is named by no manifest" in caplog.text
    assert f"{visible} is named by no manifest" in caplog.text


def test_a_target_of_the_same_name_is_kept_when_it_is_the_same_and_set_aside_when_not(rig: Rig, stack: Stack) -> None:
    expected = fill(rig)
    twin = new_rig(stack, rig.stream.root, archive={"target_size": "1kB"})
    fill(twin)
    twin.archive()
    other, same = twin.visible()[:2]
    rig.storage.create(other, b"of somebody else")
    rig.storage.create(same, twin.storage.read(same))
    rig.archive()
    assert rig.storage.read(f"_bad/{other}") == b"of somebody else"
    assert rig.storage.status(f"_bad/{same}") is None
    assert_archived(rig, expected)
    assert {path: rig.storage.read(path) for path in rig.visible()} == {
        path: twin.storage.read(path) for path in twin.visible()
    }


def test_a_target_that_is_gone_is_voided_and_its_sources_are_archived_again_as_far_as_they_are_there(rig: Rig) -> None:
    expected = fill(rig)
    sources = {path: data for path, data in rig.files().items() if "/_incoming/" in path}
    rig.archive()
    lost = rig.visible()[1]
    held = {row["srcFile"] for row in rig.index() if row["destFile"] == lost}
    rig.storage.delete(lost)
    assert rig.archive() == [HOUR]
    assert {gap.file for gap in rig.record().gaps} == held
    for path in held:
        rig.storage.create(path, sources[path])
    assert rig.archive() == [HOUR]
    assert rig.record().gaps == ()
    assert_archived(rig, expected)
    assert lost not in rig.visible()


def test_a_damaged_target_that_a_flag_names_is_left_alone_and_told(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    fill(rig)
    rig.archive()
    damaged = rig.visible()[0]
    flag = {"files": [{"path": path} for path in rig.visible()]}
    rig.storage.create(layout.hour_flag(HOUR, 1), json.dumps(flag).encode())
    with rig.ledger() as ledger:
        node = ledger.hour(HOUR)
        ledger.save_hour("flag", HOUR, node, replace(node.value, revision=1, unflagged=()))
    data = rig.storage.read(damaged)
    rig.storage.delete(damaged)
    rig.storage.create(damaged, data[:-20])
    with rig.archiver() as archiver:
        assert archiver.archive(HOUR, Here(), deep=True)
    assert rig.storage.read(damaged) == data[:-20]
    assert rig.record().archives == 1
    assert "is damaged, but a flag names it" in caplog.text


def test_sources_that_a_finished_archive_holds_are_deleted_when_it_is_whole(rig: Rig) -> None:
    expected = fill(rig)
    path = rig.path(1, "0001-0")
    source = rig.storage.read(path)
    rig.archive()
    rig.storage.create(path, source)
    assert rig.archive() == [HOUR]
    assert_archived(rig, expected)
    assert rig.record().archives == 1


def test_late_lines_become_further_files(rig: Rig) -> None:
    expected = fill(rig)
    rig.archive()
    before = {path: rig.storage.read(path) for path in rig.visible()}
    late = lines(10, 3000)
    rig.commit(3, {"0001-0": rig.boom(3, [late], first=100)})
    rig.archive()
    assert_archived(rig, sorted(expected + late))
    assert {path: rig.storage.read(path) for path in before} == before
    assert rig.record().unflagged == (1, 2, 3)


def test_two_jobs_never_work_on_one_hour_and_a_later_try_takes_it_at_once(rig: Rig) -> None:
    expected = fill(rig)
    with rig.archiver() as first:
        assert first.leases.take(HOUR)
        assert rig.archive(Task(name="another", attempt=1)) == []
        assert rig.archive(Task(name=TASK.name, attempt=2)) == [HOUR]
        with pytest.raises(Fenced, match="its lease is with nobody"):
            first.leases.update("archive", HOUR, lambda record: record)
    assert_archived(rig, expected)


def test_a_lease_is_renewed_and_one_that_stands_still_is_free_after_its_expiry(rig: Rig) -> None:
    fill(rig)
    clock = [0.0]
    with rig.ledger() as ledger, join_workers(ledger.client, task="a", attempt=1) as one:
        held = HourLeases(ledger, one, expiry_s=0.3)
        with join_workers(ledger.client, task="b", attempt=1) as two:
            other = HourLeases(ledger, two, expiry_s=30, monotonic=lambda: clock[0])
            with held:
                assert held.take(HOUR)
                assert not other.take(HOUR)
                count = rig.record().lease
                wait_until(lambda: rig.record().lease != count, "the lease is renewed", within_s=30)
                clock[0] += 31
                assert not other.take(HOUR), "its count has moved since"
                held._stop.set()
                held._renewer.join()
                other.take(HOUR)
                clock[0] += 31
                assert other.take(HOUR)
                with pytest.raises(Fenced):
                    held.update("archive", HOUR, lambda record: record)


def test_leftovers_below_tmp_that_nobody_names_are_removed(rig: Rig) -> None:
    expected = fill(rig)
    rig.storage.create(f"_tmp/archive-{HOUR}-0007/3/0/x.bm", b"of a job that died")
    rig.storage.create("_tmp/shift-20261110T0001/0/x.bm", b"of a job that died")
    rig.storage.create(f"_tmp/flag-{HOUR}-0001/abc", b"a flag that is being prepared")
    rig.archive()
    with rig.ledger() as ledger:
        found = Leftovers(ledger=ledger, storage=rig.storage)
        assert found.delete() == [f"_tmp/archive-{HOUR}-0007", "_tmp/shift-20261110T0001/0"]
        assert found.find() == []
    assert rig.storage.status(f"_tmp/flag-{HOUR}-0001/abc")
    rig.storage.delete("_tmp", recursive=True)
    assert rig.readable() == expected


def test_an_hour_that_lost_its_index_is_told_and_keeps_no_other_from_being_archived(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    fill(rig)
    rig.archive()
    rig.storage.delete(layout.index_segment(HOUR, 1))
    later = Hour(HOUR.end_ms)
    found = lines(10, hour=later)
    rig.commit(3, {"0001-0": boom_file(rig.path(3, "0001-0", hour=later), [found])}, later)
    assert rig.archive() == [later]
    assert rig.readable(later) == found
    assert "2026-11-10/_index/22-0001.jsonl is gone" in caplog.text


def test_check_tells_what_repair_will_do_and_changes_nothing(rig: Rig, tmp_path: Path) -> None:
    expected = fill(rig)
    environment = {**rig.stack.environment(), "TIDEMARK_STREAMS": str(streams_file(rig, tmp_path))}

    def run(*arguments: str) -> tuple[int, str]:
        done = tidemark("archive", *arguments, environment=environment)
        return done.returncode, done.stdout + done.stderr

    sources = {path: data for path, data in rig.files().items() if "/_incoming/" in path}
    assert run("repair", rig.stream.name, "--yes")[0] == 0
    assert run("check", rig.stream.name) == (0, "1 hours: nothing is wrong\n")
    damaged = rig.visible()[0]
    data = rig.storage.read(damaged)
    rig.storage.delete(damaged)
    rig.storage.create(damaged, data[:-1] + b"x")
    for path, source in sources.items():
        rig.storage.create(path, source)
    before = rig.files()
    code, told = run("check", rig.stream.name, HOUR.day)
    assert code == 1
    assert f"{damaged}: " in told
    assert "void it, archive its sources again" in told
    assert "an archive holds it: delete it" in told
    code, told = run("repair", rig.stream.name)
    assert (code, "say --yes" in told) == (2, True)
    assert rig.files() == before
    assert run("repair", rig.stream.name, "--yes")[0] == 0
    assert run("check", rig.stream.name)[0] == 0
    assert_archived(rig, expected)
    assert rig.storage.read(f"_bad/{damaged}") == data[:-1] + b"x"
    assert rig.record().gaps == ()
