"""Files in HDFS through WebHDFS, by the package `hdfs`.

What is told as done is on the DataNodes (on their disks too with `dfs.datanode.synconclose`) and in the
NameNode's log.
"""

import builtins
import io
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, BinaryIO, TypeVar, cast

import tenacity

from tidemark.environment import Connection
from tidemark.errors import (
    AlreadyExists,
    CommitStateUnknown,
    NotFound,
    ServiceUnreachable,
    TidemarkError,
    WrongUse,
)
from tidemark.storage.paths import check_folder, check_path, check_range, join_path, parent_of, part_beside
from tidemark.storage.port import FileAttributes, FileStatus, Sink, Space
from tidemark.storage.webhdfs_calls import AnswerLost, Client, ask, url_of
from tidemark.storage.webhdfs_transfer import Download, Upload

T = TypeVar("T")

_log = logging.getLogger(__name__)
_READ_BUFFER = 1 << 20
_RETRY_SECONDS = 30.0
_CONNECT_SECONDS = 5.0
_LEAST_ANSWER_SECONDS = 10.0
_DISCARD_SECONDS = 2.0
_CAPACITY = "Hadoop:service=NameNode,name=FSNamesystemState"
_NO_QUOTA = -1


class WebHdfsStorage:
    """The connection's extra may have `retry_seconds`, and `namenode` (`hdfs://host:8020`) for `uri`."""

    def __init__(self, root: str, connection: Connection, attributes: FileAttributes) -> None:
        self._root = root
        self._connection = connection
        self._attributes = attributes
        self._retry_seconds = _retry_seconds_of(connection)
        self._urls = url_of(connection)

    def __repr__(self) -> str:
        return f"WebHdfsStorage({self.uri('')!r})"

    def __reduce__(self) -> tuple[type["WebHdfsStorage"], tuple[str, Connection, FileAttributes]]:
        return WebHdfsStorage, (self._root, self._connection, self._attributes)

    def create(self, path: str, data: bytes) -> None:
        with self.open_write(path) as sink:
            sink.write(data)

    @contextmanager
    def open_write(self, path: str) -> Iterator[Sink]:
        if self.status(check_path(path)) is not None:
            raise AlreadyExists(f"Cannot write {self._where(path)}: it is there already")
        self._make_parent(path)
        part = part_beside(path)
        begun = self._begin_upload(part, path)
        try:
            with begun as upload:
                yield upload
            self._complete(part, upload.written)
            self._rename_once(part, path)
        except BaseException:
            self._discard(part)
            raise

    def rename(self, source: str, target: str, *, make_parents: bool = True) -> None:
        check_path(source)
        check_path(target)
        try:
            self._rename_once(source, target)
        except NotFound:
            if not make_parents or self.status(source) is None:
                raise
            self._make_parent(target)
            self._rename_once(source, target)

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        with self.open_read(path, start, end) as file:
            return file.read()

    def open_read(self, path: str, start: int = 0, end: int | None = None) -> BinaryIO:
        check_range(check_path(path), start, end)
        try:
            download = self._begin_download(path, start, end)
        except (NotFound, ServiceUnreachable):
            raise
        except TidemarkError:
            # HDFS refuses to read from the end on, in words that are no contract.
            if not self._ends_before(path, start):
                raise
            return io.BytesIO()
        return cast(BinaryIO, io.BufferedReader(download, _READ_BUFFER))

    def status(self, path: str) -> FileStatus | None:
        place = self._absolute(check_folder(path))
        try:
            found = self._ask(f"look at {self._where(path)}", lambda: self._client.status(place))
        except NotFound:
            return None
        return _status_of(path, found)

    def list(self, path: str) -> builtins.list[FileStatus]:
        place = self._absolute(check_folder(path))
        try:
            found = self._ask(f"list {self._where(path)}", lambda: self._client.list(place, status=True))
        except NotFound:
            return []
        return [_status_of(join_path(path, name), status) for name, status in sorted(found)]

    def delete(self, path: str, recursive: bool = False) -> bool:
        place = self._absolute(check_path(path))
        act = f"delete {self._where(path)}"

        def request() -> bool:
            return bool(self._client.delete(place, recursive=recursive))

        try:
            return self._ask(act, request, repeat_lost=False)
        except AnswerLost:
            self._ask(act, request)
            return True

    def make_folder(self, path: str) -> None:
        place = self._absolute(check_folder(path))
        self._ask(f"make the folder {self._where(path)}", lambda: self._client.makedirs(place))

    def space(self) -> Space | None:
        """Within the root's own quota; one of a folder above it is not looked for."""
        act = f"ask for the space of {self._where('')}"
        capacity = self._ask(act, lambda: self._client.bean(_CAPACITY))
        defaults = self._ask_if_known(act, lambda: self._client._get_server_defaults("/").json()["FsServerDefaults"])
        if capacity is None or defaults is None:
            return None
        summary = self._ask_if_known(act, lambda: self._client.content(self._root))
        quota = summary["spaceQuota"] if summary else _NO_QUOTA
        left = capacity["CapacityRemaining"]
        return Space(
            free=left if summary is None or quota < 0 else min(left, max(0, quota - summary["spaceConsumed"])),
            total=capacity["CapacityTotal"] if quota < 0 else quota,
            replication=defaults["replication"],
            nodes=capacity["NumLiveDataNodes"],
        )

    def uri(self, path: str) -> str:
        nearest = self._urls.split(";")[0].replace("http", "webhdfs", 1)
        service = str(self._connection.extra.get("namenode") or nearest)
        return f"{service.rstrip('/')}{self._absolute(check_folder(path))}"

    @cached_property
    def _client(self) -> Client:
        seconds = self._retry_seconds
        return Client(self._connection, (min(_CONNECT_SECONDS, seconds), max(_LEAST_ANSWER_SECONDS, seconds)))

    def _ask(self, act: str, request: Callable[[], T], *, repeat_lost: bool = True) -> T:
        return ask(act, request, self._retry_seconds, repeat_lost=repeat_lost)

    def _ask_if_known(self, act: str, request: Callable[[], T]) -> T | None:
        """None for what this HDFS does not know, or not yet."""
        try:
            return self._ask(act, request)
        except ServiceUnreachable:
            raise
        except TidemarkError:
            return None

    def _absolute(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _where(self, path: str) -> str:
        return f"{self._absolute(path)} at {self._urls}"

    def _make_parent(self, path: str) -> None:
        try:
            self.make_folder(parent_of(path))
        except AlreadyExists as error:
            raise WrongUse(f"Cannot write {self._where(path)}: its folder is a file") from error

    def _begin_upload(self, part: str, path: str) -> Upload:
        act = f"write {self._where(path)}"
        mode, replication = self._attributes.mode, self._attributes.replication
        permission = None if mode is None else f"{mode:o}"

        def request() -> Upload:
            answer = self._client._create(
                self._absolute(part), overwrite=False, permission=permission, replication=replication
            )
            return Upload(answer.headers["location"], act)

        return self._ask(act, request)

    def _complete(self, part: str, written: int) -> None:
        owner, group = self._attributes.owner, self._attributes.group
        if owner is not None or group is not None:
            act = f"give {self._where(part)} to {owner}:{group}"
            self._ask(act, lambda: self._client.set_owner(self._absolute(part), owner, group))
        found = self.status(part)
        if found is None or found.size != written:
            raise TidemarkError(f"Cannot write {self._where(part)}: wrote {written} bytes, found {found}")

    def _begin_download(self, path: str, start: int, end: int | None) -> Download:
        place = self._absolute(path)
        act = f"read {self._where(path)}"

        def locate(position: int) -> str:
            length = None if end is None else end - position
            answer = self._client._open(place, offset=position, length=length, noredirect="true")
            return str(answer.json()["Location"])

        return Download(locate, lambda request: self._ask(act, request), start)

    def _ends_before(self, path: str, start: int) -> bool:
        found = self.status(path)
        return found is not None and not found.is_folder and found.size <= start

    def _rename_once(self, source: str, target: str) -> None:
        try:
            self._ask_to_rename(source, target, repeat_lost=False)
        except AnswerLost:
            self._rename_again(source, target)
        except (NotFound, AlreadyExists, ServiceUnreachable):
            raise
        except TidemarkError as error:
            # HDFS has other words for a folder in the way of a file, and the other way round.
            if self.status(target) is None:
                raise
            raise AlreadyExists(f"Cannot rename {self._where(source)}: {target} is there already") from error

    def _rename_again(self, source: str, target: str) -> None:
        """It never replaces, so asking again tells what became of the first: no source, but a target."""
        try:
            self._ask_to_rename(source, target)
        except NotFound:
            if self.status(target) is None:
                raise
        except ServiceUnreachable as error:
            raise CommitStateUnknown(f"{error}; it may have been done before") from error

    def _ask_to_rename(self, source: str, target: str, *, repeat_lost: bool = True) -> None:
        """Not the package's `rename`, which moves a file *into* a folder that has the target's name."""
        old, new = self._absolute(source), self._absolute(target)
        self._ask(
            f"rename {old} to {self._where(target)}",
            lambda: self._client._rename(old, destination=new, renameoptions="NONE"),
            repeat_lost=repeat_lost,
        )

    def _discard(self, part: str) -> None:
        """A DataNode whose line broke may make the file a moment later, so it is awaited."""
        until_it_was_there = tenacity.Retrying(
            retry=tenacity.retry_if_result(lambda was_there: not was_there),
            wait=tenacity.wait_fixed(0.1),
            stop=tenacity.stop_after_delay(_DISCARD_SECONDS),
            retry_error_callback=lambda _: False,
        )
        try:
            until_it_was_there(self._delete_once, part)
        except TidemarkError as error:
            _log.warning("A part of a file may stay behind: %s", error)

    def _delete_once(self, path: str) -> bool:
        place = self._absolute(path)
        return bool(ask(f"delete {self._where(path)}", lambda: self._client.delete(place), seconds=0))


def _status_of(path: str, found: Mapping[str, Any]) -> FileStatus:
    return FileStatus(
        path=path,
        size=found["length"],
        is_folder=found["type"] == "DIRECTORY",
        modified_ms=found["modificationTime"],
    )


def _retry_seconds_of(connection: Connection) -> float:
    given = connection.extra.get("retry_seconds", _RETRY_SECONDS)
    try:
        return float(given)
    except (TypeError, ValueError):
        raise WrongUse(
            f"Cannot use the connection {connection.conn_id}: found retry_seconds {given!r}, wanted a number"
        ) from None
