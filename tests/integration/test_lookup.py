"""`tidemark locate` and `tidemark cat`, and how little they read."""

import io
import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, BinaryIO, cast

import pytest
from tests.archive import HOUR, Line, Rig, cut, lines, new_rig, streams_file
from tests.commands import tidemark
from tests.integration.test_archive import GOLDEN, foreign_file

from tidemark import layout
from tidemark.inspect.locate import locate_offset, locate_time
from tidemark.inspect.places import places_of_hour, read_places
from tidemark.ledger.records import dump, parse
from tidemark.manifest import Manifest, ManifestShard
from tidemark.names import Shard, isoformat
from tidemark.stack import Stack
from tidemark.storage import Storage

Run = Callable[..., CompletedProcess[str]]
FIRST, SECOND = lines(60, 0, size=200), lines(50, 1000, size=200)


class Counting:
    """A storage that counts the bytes that are read through its port."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.read_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        data = self._storage.read(path, start, end)
        self.read_bytes += len(data)
        return data

    def open_read(self, path: str, start: int = 0, end: int | None = None) -> BinaryIO:
        return io.BytesIO(self.read(path, start, end))


@pytest.fixture
def rig(stack: Stack, tmp_path: Path) -> Rig:
    """Three shifts: two are archived, one is not."""
    rig = new_rig(stack, tmp_path.as_uri(), archive={"target_size": "2kB"})
    commit(rig, 1, FIRST, 0)
    commit(rig, 2, SECOND, 60)
    rig.archive()
    commit(rig, 3, lines(20, 2000), 110)
    return rig


def commit(rig: Rig, number: int, found: list[Line], first: int) -> None:
    rig.commit(number, {"0001-0": rig.boom(number, cut(found, 10), first=first)})
    path = layout.manifest(number, f"20261110T{number:04d}")
    manifest = parse(Manifest, rig.storage.read(path))
    count = len(found)
    row = ManifestShard(
        start=first, end=first + count, records=count, lines=count, skewed=0, bad=0, tombstones=0, holes=0
    )
    rig.storage.delete(path)
    rig.storage.create(path, dump(Manifest(**{**_fields(manifest), "shards": {"0001-0": row}})))


def _fields(manifest: Manifest) -> dict[str, Any]:
    return {name: getattr(manifest, name) for name in Manifest.__slots__}


@pytest.fixture
def run(rig: Rig, tmp_path: Path) -> Run:
    environment = {**rig.stack.environment(), "TIDEMARK_STREAMS": str(streams_file(rig, tmp_path))}
    return lambda *arguments: tidemark(*arguments, environment=environment)


@pytest.mark.parametrize(("offset", "line"), [(0, FIRST[0]), (37, FIRST[37]), (60, SECOND[0]), (109, SECOND[-1])])
def test_a_line_is_located_by_its_offset_reading_one_block_of_the_hour(rig: Rig, offset: int, line: Line) -> None:
    counting = Counting(rig.storage)
    with rig.ledger() as ledger:
        found = locate_offset(cast(Storage, counting), ledger, Shard(1, 0), offset)
    assert (found.line.time_ms, found.line.message) == line
    known = sum(len(data) for path, data in rig.files().items() if "_manifests/" in path or "_index/" in path)
    block = found.place.end - found.place.start
    assert block < len(rig.storage.read(found.place.path)) / 2
    assert counting.read_bytes <= known + found.place.header + block


def test_a_line_that_is_not_archived_yet_is_located_in_its_source(rig: Rig) -> None:
    with rig.ledger() as ledger:
        found = locate_offset(rig.storage, ledger, Shard(1, 0), 112)
    assert found.place.path == rig.path(3, "0001-0")
    assert found.line.message == lines(20, 2000)[2][1]


def test_a_line_is_located_by_its_time(rig: Rig) -> None:
    when = SECOND[17][0]
    with rig.ledger() as ledger:
        found = locate_time(rig.storage, ledger, when - 1, Shard(1, 0))
    assert (found.line.time_ms, found.line.message) == SECOND[17]
    assert found.line.offset == 77


def test_the_command_prints_the_line_its_file_and_byte_range(rig: Rig, run: Run) -> None:
    shown = run("locate", rig.stream.name, "0001-0", "37")
    assert shown.returncode == 0, shown.stderr
    head, place, line = shown.stdout.splitlines()
    assert head == f"shard 0001-0 offset 37 (cursor 0001:37) at {isoformat(FIRST[37][0])}"
    shown = run("locate", rig.stream.name, "0001-0", "37", "--json")
    assert json.loads(shown.stdout)["cursor"] == [1, 37]
    assert place.startswith(f"{HOUR.day}/{HOUR.hh}/2026-11-10T22-0001-")
    assert line.encode() == FIRST[37][1]
    pieces = run("locate", rig.stream.name, "--source", Path(rig.path(1, "0001-0")).name, "--json")
    assert sum(piece["lines"] for piece in json.loads(pieces.stdout)["pieces"]) == 60
    for unread in ("4711", "-1"):
        missed = run("locate", rig.stream.name, "--", "0001-0", unread)
        assert (missed.returncode, "no shift has read it, next is" in missed.stderr) == (1, True)
    assert run("locate", rig.stream.name).returncode == 2


def test_a_line_that_is_not_utf8_is_located_byte_by_byte(rig: Rig, run: Run) -> None:
    time_ms, message = HOUR.start_ms + 7, b"caf\xe9 \xff"
    commit(rig, 4, [(time_ms, message)], 130)
    shown = json.loads(run("locate", rig.stream.name, "0001-0", "130", "--json").stdout)
    assert (b64decode(shown["message_base64"]), shown["epoch_ms"], shown["offset"]) == (message, time_ms, 130)
    assert "message" not in shown
    assert "message" in json.loads(run("locate", rig.stream.name, "0001-0", "37", "--json").stdout)


def test_cat_prints_the_lines_that_match_and_reads_only_blocks_that_can(rig: Rig, run: Run) -> None:
    name, hour = rig.stream.name, str(HOUR)
    expected = [b"%d\t%b" % line for line in sorted(FIRST + SECOND + lines(20, 2000))]
    whole = run("cat", name, hour)
    assert whole.returncode == 0, whole.stderr
    assert sorted(whole.stdout.encode().splitlines()) == sorted(expected)
    assert whole.stderr == ""
    some = run("cat", name, hour, "--from", isoformat(SECOND[5][0]), "--to", isoformat(SECOND[8][0]))
    assert some.stdout.encode().splitlines() == [b"%d\t%b" % line for line in SECOND[5:8]]
    found = run("cat", name, hour, "--grep", "0042$")
    assert found.stdout.encode().splitlines() == [b"%d\t%b" % FIRST[42]]
    assert run("cat", name, hour, "--grep", "(").returncode == 2


def test_blocks_of_a_rewritten_file_are_found_too(stack: Stack, tmp_path: Path) -> None:
    rig = new_rig(stack, tmp_path.as_uri())
    data = (GOLDEN / "logdriver-eventid.bm").read_bytes()
    foreign = foreign_file(data, "x")
    rig.commit(1, {"0001-0": rig.boom(1, cut(lines(30), 10)), "0001-1": foreign})
    rig.archive()
    with rig.ledger() as ledger:
        places = [place for place in places_of_hour(rig.storage, ledger, HOUR) if place.shard == "0001-1"]
        found = [line.offset for _, placed in read_places(rig.storage, places) for line in placed]
    assert found == list(range(sum(block.lines for block in foreign.blocks)))
