"""One behaviour suite over every implementation of the storage port, then what only one of them can do."""

import contextlib
import dataclasses
import errno
import getpass
import grp
import os
import pickle
import re
import socket
import socketserver
import threading
import time
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import pytest
import requests

from tidemark.environment import Connection, parse_connection
from tidemark.errors import (
    AlreadyExists,
    CommitStateUnknown,
    NotFound,
    ServiceUnreachable,
    TidemarkError,
    WrongUse,
)
from tidemark.storage import FileAttributes, Storage, local, open_storage

MEBIBYTE = 1 << 20
NAMES = ["ночь.bm", "日本 語", "🌊", "é", "x" * 255, "a b", "100%", "%41", "%2F", "a+b", "a#b", "#LATEST"]
NAMES += ["a?b=c&d", "a;b,c", "'\"`", "=~!@$^*()", "[{x}]", "\\n"]


class Service(Protocol):
    def environment(self) -> dict[str, str]: ...


class Relay(socketserver.ThreadingTCPServer):
    """Stands between a client and a service and breaks the connection at a chosen byte."""

    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Line)
        self.upstream = (host, port)
        self.port: int = self.server_address[1]
        self.answers_to_lose = 0
        self.cut_request_after: int | None = None
        self.cut_answer_after: int | None = None
        self.renamed: tuple[bytes, bytes] = (b"", b"")

    def rename_in_answers(self, old: str, new: str) -> None:
        """So that a redirect leads to another relay."""
        self.renamed = (old.encode(), new.encode())


class _Line(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        relay = cast(Relay, self.server)
        with socket.create_connection(relay.upstream) as service:
            back = threading.Thread(target=self._answer, args=(relay, service), daemon=True)
            back.start()
            with contextlib.suppress(OSError):
                self._ask(relay, service)
            back.join()

    def _ask(self, relay: Relay, service: socket.socket) -> None:
        sent = 0
        while data := self.request.recv(1 << 16):
            service.sendall(data)
            sent += len(data)
            if relay.cut_request_after is not None and sent > relay.cut_request_after:
                relay.cut_request_after = None
                _hang_up(service, self.request)
        service.shutdown(socket.SHUT_WR)

    def _answer(self, relay: Relay, service: socket.socket) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := service.recv(1 << 16):
                passed += len(data)
                if self._is_to_be_lost(relay, passed):
                    break
                self.request.sendall(data.replace(*relay.renamed) if relay.renamed[0] else data)
        _hang_up(self.request, service)

    def _is_to_be_lost(self, relay: Relay, passed: int) -> bool:
        if relay.answers_to_lose:
            relay.answers_to_lose -= 1
            return True
        if relay.cut_answer_after is not None and passed > relay.cut_answer_after:
            relay.cut_answer_after = None
            return True
        return False


def _hang_up(*lines: socket.socket) -> None:
    for line in lines:
        with contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay_to(host: str, port: int) -> Iterator[Relay]:
    with Relay(host, port) as relay:
        thread = threading.Thread(target=relay.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield relay
        finally:
            relay.shutdown()
            thread.join()


@pytest.fixture(scope="session")
def connection(stack: Service) -> Connection:
    return parse_connection("webhdfs_default", stack.environment()["AIRFLOW_CONN_WEBHDFS_DEFAULT"])


@pytest.fixture
def hdfs_root(connection: Connection) -> Iterator[str]:
    name = f"storage-{uuid.uuid4().hex}"
    yield f"hdfs:///{name}"
    requests.delete(url_of(connection, f"/{name}"), params=act("DELETE", connection, recursive="true"), timeout=30)


@pytest.fixture
def hdfs(connection: Connection, hdfs_root: str) -> Storage:
    return open_storage(hdfs_root, lambda _: connection)


@pytest.fixture(params=["local", "hdfs"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return open_storage(f"file://{tmp_path}/root", parse_nothing)
    found: Storage = request.getfixturevalue("hdfs")
    return found


@pytest.fixture
def relay(connection: Connection) -> Iterator[Relay]:
    with relay_to(str(connection.host), int(connection.port or 0)) as relay:
        yield relay


@pytest.fixture
def through_relay(connection: Connection, hdfs_root: str, relay: Relay) -> Storage:
    """HDFS with a relay in front of the NameNode."""
    between = dataclasses.replace(connection, port=relay.port)
    return open_storage(hdfs_root, lambda _: between)


@pytest.fixture
def datanode(connection: Connection, relay: Relay) -> Iterator[Relay]:
    """A relay in front of the DataNode, where the relay in front of the NameNode sends its clients."""
    settings = act("CREATE", connection)
    answer = requests.put(url_of(connection, "/x"), params=settings, allow_redirects=False, timeout=30)
    place = urlsplit(answer.headers["Location"])
    with relay_to(str(place.hostname), int(place.port or 0)) as behind:
        relay.rename_in_answers(place.netloc, f"127.0.0.1:{behind.port}")
        yield behind


def parse_nothing(conn_id: str) -> Connection:
    raise AssertionError(f"{conn_id} is not needed for local files")


def url_of(connection: Connection, path: str) -> str:
    return f"http://{connection.host}:{connection.port}/webhdfs/v1{path}"


def act(name: str, connection: Connection, **settings: str) -> dict[str, str]:
    return {"op": name, "user.name": connection.login or getpass.getuser(), **settings}


def names_below(storage: Storage, folder: str) -> list[str]:
    return [status.path for status in storage.list(folder)]


def write_zeros(storage: Storage, path: str, size: int) -> None:
    with storage.open_write(path) as sink:
        for start in range(0, size, MEBIBYTE):
            sink.write(bytes(min(MEBIBYTE, size - start)))


def try_together(acts: list[Callable[[], None]]) -> list[TidemarkError | None]:
    """Start all at the same moment; None for each that succeeded."""
    barrier = threading.Barrier(len(acts))

    def attempt(one: Callable[[], None]) -> TidemarkError | None:
        barrier.wait()
        try:
            one()
        except TidemarkError as error:
            return error
        return None

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(attempt, acts))


def assert_exactly_one_won(outcomes: list[TidemarkError | None]) -> None:
    losers = [outcome for outcome in outcomes if outcome is not None]
    assert len(losers) == len(outcomes) - 1
    assert {type(loser) for loser in losers} == {AlreadyExists}


# Writing


def test_a_created_file_reads_back_with_its_parents_made(storage: Storage) -> None:
    storage.create("2026-11-15/07/_READY", b"{}")
    assert storage.read("2026-11-15/07/_READY") == b"{}"
    assert names_below(storage, "2026-11-15/07") == ["2026-11-15/07/_READY"]


def test_an_empty_file_is_a_file(storage: Storage) -> None:
    storage.create("empty", b"")
    assert storage.read("empty") == b""
    status = storage.status("empty")
    assert status is not None
    assert (status.size, status.is_folder) == (0, False)


def test_create_does_not_overwrite(storage: Storage) -> None:
    storage.create("a", b"first")
    with pytest.raises(AlreadyExists):
        storage.create("a", b"second")
    assert storage.read("a") == b"first"
    assert names_below(storage, "") == ["a"]


def test_create_does_not_take_the_name_of_a_folder(storage: Storage) -> None:
    storage.make_folder("a")
    with pytest.raises(AlreadyExists):
        storage.create("a", b"x")
    assert names_below(storage, "a") == []


def test_nothing_is_created_below_a_file(storage: Storage) -> None:
    storage.create("a", b"x")
    with pytest.raises(WrongUse):
        storage.create("a/b", b"y")
    with pytest.raises(WrongUse):
        storage.create("a/b/c", b"y")


def test_of_many_who_create_one_name_exactly_one_wins(storage: Storage) -> None:
    bodies = [f"writer {number}".encode() for number in range(6)]
    outcomes = try_together([lambda body=body: storage.create("day/flag", body) for body in bodies])  # type: ignore[misc]
    assert_exactly_one_won(outcomes)
    assert storage.read("day/flag") == bodies[outcomes.index(None)]
    assert names_below(storage, "day") == ["day/flag"]


def test_a_file_has_no_name_before_it_is_complete(storage: Storage) -> None:
    with storage.open_write("day/a.bm") as sink:
        assert sink.write(b"one") == 3
        assert sink.write(b"") == 0
        assert storage.status("day/a.bm") is None
        sink.write(memoryview(b"two"))
    assert storage.read("day/a.bm") == b"onetwo"


def test_an_error_in_the_block_leaves_nothing_and_goes_on(storage: Storage) -> None:
    def fail() -> None:
        with storage.open_write("day/a.bm") as sink:
            sink.write(bytes(3 * MEBIBYTE))
            raise FileNotFoundError(errno.ENOENT, "mine")

    with pytest.raises(FileNotFoundError, match="mine"):
        fail()
    assert names_below(storage, "day") == []


def test_an_error_before_the_first_byte_leaves_nothing(storage: Storage) -> None:
    for _ in range(20):
        with pytest.raises(KeyboardInterrupt), storage.open_write("day/a.bm"):
            raise KeyboardInterrupt
    assert names_below(storage, "day") == []


def test_a_name_taken_while_the_block_ran_stays_with_its_owner(storage: Storage) -> None:
    with pytest.raises(AlreadyExists), storage.open_write("day/a.bm"):
        storage.create("day/a.bm", b"early")
    assert storage.read("day/a.bm") == b"early"
    assert names_below(storage, "day") == ["day/a.bm"]


def test_fifty_megabytes_stream_out_and_in_in_constant_memory(storage: Storage) -> None:
    piece = os.urandom(MEBIBYTE)
    storage.make_folder("warm")
    tracemalloc.start()
    try:
        with storage.open_write("big.bm") as sink:
            for _ in range(50):
                sink.write(piece)
        with storage.open_read("big.bm") as file:
            for _ in range(50):
                assert file.read(MEBIBYTE) == piece
            assert file.read(1) == b""
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MEBIBYTE


# Renaming


def test_space_is_told_before_the_root_is_there_and_after(storage: Storage) -> None:
    for _ in range(2):
        found = storage.space()
        assert found
        assert 0 < found.free <= found.total
        assert min(found.replication, found.nodes) >= 1
        storage.make_folder("")


def test_rename_moves_a_file_and_makes_the_parents(storage: Storage) -> None:
    storage.create("_tmp/1/a.bm", b"x")
    storage.rename("_tmp/1/a.bm", "2026-11-15/07/_incoming/a.bm")
    assert storage.read("2026-11-15/07/_incoming/a.bm") == b"x"
    assert storage.status("_tmp/1/a.bm") is None


def test_rename_moves_a_folder_with_what_is_in_it(storage: Storage) -> None:
    storage.create("_tmp/1/deep/a.bm", b"x")
    storage.rename("_tmp/1", "_tmp/taken/1")
    assert storage.read("_tmp/taken/1/deep/a.bm") == b"x"
    assert names_below(storage, "_tmp") == ["_tmp/taken"]


def test_rename_that_may_make_no_parents_says_that_there_is_none(storage: Storage) -> None:
    storage.create("source", b"x")
    with pytest.raises(NotFound):
        storage.rename("source", "none/target", make_parents=False)
    assert [found.path for found in storage.list("")] == ["source"]
    storage.make_folder("there")
    storage.rename("source", "there/target", make_parents=False)
    assert storage.read("there/target") == b"x"


def test_rename_does_not_replace_a_file(storage: Storage) -> None:
    storage.create("a", b"a")
    storage.create("b", b"b")
    with pytest.raises(AlreadyExists):
        storage.rename("a", "b")
    assert (storage.read("a"), storage.read("b")) == (b"a", b"b")


def test_a_file_renamed_to_a_folder_does_not_move_into_it(storage: Storage) -> None:
    storage.create("a", b"a")
    storage.make_folder("folder")
    with pytest.raises(AlreadyExists):
        storage.rename("a", "folder")
    assert storage.read("a") == b"a"
    assert names_below(storage, "folder") == []


@pytest.mark.parametrize("content", ["empty", "full"])
def test_a_folder_is_never_renamed_over_another_folder(storage: Storage, content: str) -> None:
    storage.create("a/x", b"x")
    storage.make_folder("b")
    if content == "full":
        storage.create("b/y", b"y")
    with pytest.raises(AlreadyExists):
        storage.rename("a", "b")
    assert storage.read("a/x") == b"x"


def test_a_folder_is_not_renamed_over_a_file(storage: Storage) -> None:
    storage.create("a/x", b"x")
    storage.create("b", b"b")
    with pytest.raises(AlreadyExists):
        storage.rename("a", "b")
    assert storage.read("b") == b"b"


def test_rename_to_its_own_name_is_refused(storage: Storage) -> None:
    storage.create("a", b"a")
    with pytest.raises(AlreadyExists):
        storage.rename("a", "a")
    assert storage.read("a") == b"a"


def test_rename_of_a_folder_into_itself_is_refused(storage: Storage) -> None:
    storage.create("a/x", b"x")
    with pytest.raises(TidemarkError):
        storage.rename("a", "a/b")
    assert storage.read("a/x") == b"x"


@pytest.mark.parametrize("target", ["b", "new/b", "taken"])
def test_rename_of_what_is_not_there_says_so_and_makes_nothing(storage: Storage, target: str) -> None:
    storage.create("taken", b"x")
    with pytest.raises(NotFound):
        storage.rename("a", target)
    assert names_below(storage, "") == ["taken"]


def test_rename_below_a_file_is_refused(storage: Storage) -> None:
    storage.create("a", b"a")
    storage.create("b", b"b")
    with pytest.raises(WrongUse):
        storage.rename("a", "b/c")
    assert storage.read("a") == b"a"


def test_of_many_renames_to_one_name_exactly_one_wins(storage: Storage) -> None:
    for number in range(6):
        storage.create(f"_tmp/{number}", b"%d" % number)
    acts = [lambda number=number: storage.rename(f"_tmp/{number}", "day/flag") for number in range(6)]
    outcomes = try_together(acts)  # type: ignore[arg-type]
    assert_exactly_one_won(outcomes)
    winner = outcomes.index(None)
    assert storage.read("day/flag") == b"%d" % winner
    assert names_below(storage, "_tmp") == [f"_tmp/{number}" for number in range(6) if number != winner]


# Reading


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, None), (0, 4), (3, 7), (9, 10), (9, None), (3, 3), (0, 0), (10, None), (5, 99), (50, 60)],
)
def test_a_range_reads_as_a_slice_does(storage: Storage, start: int, end: int | None) -> None:
    data = b"0123456789"
    storage.create("digits", data)
    assert storage.read("digits", start, end) == data[start:end]
    with storage.open_read("digits", start, end) as file:
        assert file.read(2) + file.read() == data[start:end]


@pytest.mark.parametrize(("start", "end"), [(-1, None), (3, 2), (0, -1)])
def test_a_range_that_runs_backwards_is_refused(storage: Storage, start: int, end: int | None) -> None:
    storage.create("digits", b"0123456789")
    with pytest.raises(WrongUse, match=re.escape(f"[{start}, {end})")):
        storage.read("digits", start, end)


def test_an_empty_file_reads_as_empty_from_anywhere(storage: Storage) -> None:
    storage.create("empty", b"")
    assert storage.read("empty", 5) == b""


def test_what_is_not_there_cannot_be_read(storage: Storage) -> None:
    storage.make_folder("folder")
    for path in ("missing", "missing/deep", "folder"):
        with pytest.raises(NotFound):
            storage.open_read(path)


# Looking, listing, deleting


def test_status_tells_size_kind_and_time(storage: Storage) -> None:
    storage.create("day/a", b"12345")
    file, folder = storage.status("day/a"), storage.status("day")
    assert file is not None
    assert folder is not None
    assert (file.path, file.size, file.is_folder) == ("day/a", 5, False)
    assert (folder.path, folder.size, folder.is_folder) == ("day", 0, True)
    assert abs(file.modified_ms - time.time() * 1000) < 60_000


def test_status_of_what_is_not_there_is_none(storage: Storage) -> None:
    storage.create("file", b"")
    assert [storage.status(path) for path in ("missing", "missing/deep", "file/below")] == [None] * 3


def test_a_listing_is_sorted_and_names_paths_that_can_be_used(storage: Storage) -> None:
    for name in ("b", "_a", "a", "Z", "é"):
        storage.create(f"day/{name}", name.encode())
    storage.make_folder("day/c")
    found = storage.list("day")
    assert [status.path for status in found] == ["day/Z", "day/_a", "day/a", "day/b", "day/c", "day/é"]
    assert [status.is_folder for status in found] == [False, False, False, False, True, False]
    assert storage.read(found[-1].path) == "é".encode()


def test_a_missing_folder_lists_as_empty(storage: Storage) -> None:
    assert storage.list("missing/deep") == []
    assert storage.list("") == []


def test_a_folder_of_one_file_lists_that_file(storage: Storage) -> None:
    storage.create("day/day", b"")
    assert names_below(storage, "day") == ["day/day"]


def test_a_file_cannot_be_listed(storage: Storage) -> None:
    storage.create("a", b"")
    with pytest.raises(TidemarkError):
        storage.list("a")


def test_delete_says_whether_there_was_something(storage: Storage) -> None:
    storage.create("a", b"")
    assert storage.delete("a")
    assert not storage.delete("a")
    assert not storage.delete("missing/deep")


def test_a_folder_with_something_in_it_goes_only_when_asked_for(storage: Storage) -> None:
    storage.create("day/07/a", b"")
    with pytest.raises(WrongUse):
        storage.delete("day")
    assert storage.delete("day", recursive=True)
    assert storage.status("day") is None


def test_an_empty_folder_can_be_deleted(storage: Storage) -> None:
    storage.make_folder("day")
    assert storage.delete("day")


def test_a_folder_can_be_made_twice_but_not_over_a_file(storage: Storage) -> None:
    storage.make_folder("a/b/c")
    storage.make_folder("a/b/c")
    storage.create("file", b"")
    with pytest.raises(AlreadyExists):
        storage.make_folder("file")
    with pytest.raises(WrongUse):
        storage.make_folder("file/below")


# Names


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_kept_as_it_is(storage: Storage, name: str) -> None:
    storage.create(f"{name}/{name}", b"x")
    storage.rename(f"{name}/{name}", f"new/{name}")
    assert names_below(storage, "new") == [f"new/{name}"]
    assert storage.read(f"new/{name}") == b"x"
    status = storage.status(f"new/{name}")
    assert status is not None
    assert status.size == 1
    assert storage.delete(f"new/{name}")


@pytest.mark.parametrize("path", ["../out", "a/../../out", "/etc/passwd", "a//b", "", "a\nb", "a/.", "a:b"])
def test_a_path_that_could_leave_the_root_is_refused_by_every_act(storage: Storage, path: str) -> None:
    acts: list[Callable[[], Any]] = [
        lambda: storage.create(path, b""),
        lambda: storage.open_write(path).__enter__(),
        lambda: storage.rename(path, "a"),
        lambda: storage.rename("a", path),
        lambda: storage.read(path),
        lambda: storage.open_read(path),
        lambda: storage.delete(path, recursive=True),
    ]
    if path:
        acts += [lambda: storage.status(path), lambda: storage.list(path), lambda: storage.make_folder(path)]
        acts += [lambda: storage.uri(path)]
    for refused in acts:
        with pytest.raises(WrongUse):
            refused()


def test_a_storage_in_use_travels_by_pickle(storage: Storage) -> None:
    storage.create("a", b"x")
    travelled: Storage = pickle.loads(pickle.dumps(storage))
    assert travelled.read("a") == b"x"


# Local files


def test_local_files_get_mode_owner_and_group(tmp_path: Path) -> None:
    user, group = getpass.getuser(), grp.getgrgid(os.getgid()).gr_name
    wanted = FileAttributes(owner=user, group=group, mode=0o604, replication=2)
    open_storage(f"file://{tmp_path}", parse_nothing, wanted).create("a", b"")
    found = (tmp_path / "a").stat()
    assert (found.st_mode & 0o777, found.st_uid, found.st_gid) == (0o604, os.getuid(), os.getgid())


def test_a_user_that_the_machine_does_not_know_is_wrong_use(tmp_path: Path) -> None:
    storage = open_storage(f"file://{tmp_path}", parse_nothing, FileAttributes(owner="nobody-of-this-name"))
    with pytest.raises(WrongUse, match="nobody-of-this-name"):
        storage.create("a", b"")
    assert storage.list("") == []


@pytest.fixture
def without_renameat2(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_source: Path, _target: Path) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(local, "_rename_in_one_act", refuse)


@pytest.mark.usefixtures("without_renameat2")
def test_files_are_not_replaced_on_a_file_system_that_cannot_rename_so(tmp_path: Path) -> None:
    storage = open_storage(f"file://{tmp_path}", parse_nothing)
    storage.create("a", b"a")
    storage.create("b", b"b")
    with pytest.raises(AlreadyExists):
        storage.rename("a", "b")
    storage.rename("a", "c")
    assert names_below(storage, "") == ["b", "c"]


# HDFS


def test_hdfs_files_get_mode_owner_group_and_replication(connection: Connection, hdfs_root: str) -> None:
    wanted = FileAttributes(owner="tide", group="mark", mode=0o604, replication=2)
    open_storage(hdfs_root, lambda _: connection, wanted).create("a", b"x")
    place = url_of(connection, f"{hdfs_root.removeprefix('hdfs://')}/a")
    found = requests.get(place, params=act("GETFILESTATUS", connection), timeout=30).json()["FileStatus"]
    assert (found["owner"], found["group"], found["permission"]) == ("tide", "mark", "604")
    assert found["replication"] == 2


@pytest.mark.parametrize("size", [1, 40 * MEBIBYTE])
def test_a_full_quota_is_told_in_one_line(connection: Connection, hdfs_root: str, hdfs: Storage, size: int) -> None:
    hdfs.make_folder("full")
    place = url_of(connection, f"{hdfs_root.removeprefix('hdfs://')}/full")
    limits = {"namespacequota": str((1 << 63) - 1), "storagespacequota": "1000000"}
    requests.put(place, params=act("SETQUOTA", connection, **limits), timeout=30).raise_for_status()
    with pytest.raises(TidemarkError) as refusal:
        write_zeros(hdfs, "full/a.bm", size)
    wanted = r"Cannot write /\S+/full/a.bm at http://\S+: The DiskSpace quota of \S+ is exceeded: .+"
    assert re.fullmatch(wanted, str(refusal.value))
    assert names_below(hdfs, "full") == []


def test_an_unreachable_host_is_told_within_the_bound() -> None:
    with relay_to("127.0.0.1", 1) as gone:
        port = gone.port
    nobody = Connection(conn_id="webhdfs_default", host="127.0.0.1", port=port, extra={"retry_seconds": 1})
    storage = open_storage("hdfs:///data", lambda _: nobody)
    began = time.monotonic()
    with pytest.raises(ServiceUnreachable, match=f"Cannot read /data/a at http://127.0.0.1:{port}: "):
        storage.read("a")
    with pytest.raises(ServiceUnreachable, match="rename"):
        storage.rename("a", "b")
    assert time.monotonic() - began < 4


def test_reading_is_asked_again_when_an_answer_is_lost(through_relay: Storage, relay: Relay) -> None:
    through_relay.create("a", b"x")
    relay.answers_to_lose = 2
    assert through_relay.read("a") == b"x"


def test_a_rename_whose_answer_was_lost_is_found_done(through_relay: Storage, relay: Relay) -> None:
    through_relay.create("a", b"x")
    relay.answers_to_lose = 1
    through_relay.rename("a", "b")
    assert relay.answers_to_lose == 0
    assert names_below(through_relay, "") == ["b"]


def test_a_refused_rename_whose_answer_was_lost_stays_refused(through_relay: Storage, relay: Relay) -> None:
    through_relay.create("a", b"a")
    through_relay.create("b", b"b")
    relay.answers_to_lose = 1
    with pytest.raises(AlreadyExists):
        through_relay.rename("a", "b")
    relay.answers_to_lose = 1
    with pytest.raises(NotFound):
        through_relay.rename("missing", "c")


def test_a_rename_that_cannot_be_read_back_is_unknown(connection: Connection, hdfs: Storage, hdfs_root: str) -> None:
    hdfs.create("a", b"x")
    with relay_to(str(connection.host), int(connection.port or 0)) as relay:
        between = dataclasses.replace(connection, port=relay.port, extra={"retry_seconds": 1})
        relay.answers_to_lose = 1000
        with pytest.raises(CommitStateUnknown):
            open_storage(hdfs_root, lambda _: between).rename("a", "b")
    assert hdfs.read("b") == b"x"


def test_a_delete_whose_answer_was_lost_is_told_as_done(through_relay: Storage, relay: Relay) -> None:
    through_relay.create("a", b"x")
    relay.answers_to_lose = 1
    assert through_relay.delete("a")
    assert through_relay.list("") == []


def test_a_download_goes_on_where_the_datanode_broke_off(
    through_relay: Storage, hdfs: Storage, datanode: Relay
) -> None:
    data = os.urandom(5 * MEBIBYTE)
    hdfs.create("a", data)
    datanode.cut_answer_after = 2 * MEBIBYTE
    assert through_relay.read("a", 17, len(data) - 3) == data[17:-3]
    assert datanode.cut_answer_after is None


def test_an_upload_that_the_datanode_broke_off_is_unreachable_and_leaves_nothing(
    through_relay: Storage, datanode: Relay
) -> None:
    datanode.cut_request_after = 2 * MEBIBYTE
    with pytest.raises(ServiceUnreachable):
        write_zeros(through_relay, "day/a.bm", 40 * MEBIBYTE)
    assert through_relay.list("day") == []


def test_an_upload_whose_answer_was_lost_is_unreachable_and_leaves_nothing(
    through_relay: Storage, datanode: Relay
) -> None:
    datanode.answers_to_lose = 2
    with pytest.raises(ServiceUnreachable):
        through_relay.create("day/a.bm", b"x")
    assert through_relay.list("day") == []
