"""A ZooKeeper session, and transactions whose every result is looked at."""

import logging
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionClosedRequireSaslError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.interfaces import IAsyncResult
from kazoo.security import make_digest_acl

from tidemark.environment import ZOOKEEPER, Connection, Connections
from tidemark.errors import CommitFailed, CommitStateUnknown, ServiceUnreachable, WrongUse
from tidemark.ledger.records import dump, parse

_OUTCOME_UNKNOWN = (ConnectionLoss, OperationTimeoutError, SessionExpiredError, KazooTimeoutError)

ANSWER_S = 60.0
"""How long ZooKeeper may stay away before a question is given up."""
_PAUSE_S = 0.2
_MANY_S = 15.0

Record = TypeVar("Record")
Watch = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Versioned(Generic[Record]):
    """A node's value with the version it had: what a compare-and-set compares. -1: the node does not exist."""

    value: Record
    version: int


class _Socket(Protocol):
    def fileno(self) -> int: ...


class _PollingHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo opens and closes an epoll for every wait, five times a question: half of what a question costs."""

    def select(
        self,
        readers: Sequence[_Socket],
        writers: Sequence[_Socket],
        _exceptional: Sequence[_Socket],
        timeout: float | None = None,
    ) -> tuple[list[_Socket], list[_Socket], list[_Socket]]:
        """As `select.select`, for file descriptors of any size; an error counts as ready, so that it is met."""
        poll = select.poll()
        waiting = {found.fileno(): (found, select.POLLIN) for found in readers}
        waiting |= {found.fileno(): (found, select.POLLOUT) for found in writers}
        for descriptor, (_, event) in waiting.items():
            poll.register(descriptor, event)
        ready = [waiting[descriptor] for descriptor, _ in poll.poll(None if timeout is None else timeout * 1000)]
        return (
            [found for found, event in ready if event == select.POLLIN],
            [found for found, event in ready if event == select.POLLOUT],
            [],
        )


@contextmanager
def open_session(connections: Connections, *, timeout_s: float = 10.0) -> Iterator[KazooClient]:
    """A session below the connection's chroot, which is made if it is not there.

    With a login it is a digest session, and what it makes is for this login alone. Raise WrongUse, now or at any use of
    the session, when a node is not open to it.
    """
    connection = connections(ZOOKEEPER)
    hosts = ",".join(
        host if ":" in host else f"{host}:{connection.port or 2181}" for host in (connection.host or "").split(",")
    )
    chroot = "/" + str(connection.extra.get("chroot", "/tidemark")).strip("/")
    client = KazooClient(hosts=hosts, timeout=timeout_s, handler=_PollingHandler(), **_credentials(connection))
    client.logger.addFilter(_is_no_request)
    where = f"ZooKeeper at {hosts} ({ZOOKEEPER})"
    try:
        _start(client, chroot, where, timeout_s)
        yield client
    except (NoAuthError, SessionClosedRequireSaslError) as error:
        user = f"the login {connection.login!r} and its password" if connection.password else "a session without login"
        raise WrongUse(f"Cannot use {where}: it is not open to {user}") from error
    finally:
        client.stop()
        client.close()


def _start(client: KazooClient, chroot: str, where: str, timeout_s: float) -> None:
    try:
        client.start(timeout=timeout_s + 5)
        client.ensure_path_async(chroot).get(timeout=timeout_s + 5)
        # Any password opens a session: the first node that is read tells whether it is the right one.
        client.get_async(chroot).get(timeout=timeout_s + 5)
        client.chroot = chroot
    except (NoAuthError, SessionClosedRequireSaslError):
        raise
    except (KazooException, KazooTimeoutError) as error:
        raise ServiceUnreachable(f"Cannot reach {where}: {error or type(error).__name__}") from error


def _credentials(connection: Connection) -> dict[str, Any]:
    if not connection.password:
        return {}
    user = connection.login or ""
    if not user or ":" in user:
        raise WrongUse(f"Cannot use the connection {ZOOKEEPER}: found the login {user!r}; wanted one without a colon")
    return {
        "auth_data": [("digest", f"{user}:{connection.password}")],
        "default_acl": [make_digest_acl(user, connection.password, all=True)],
    }


def _is_no_request(record: logging.LogRecord) -> bool:
    """kazoo writes all that it sends into its log for debugging: the password, too."""
    return record.levelno > logging.DEBUG


def ask(call: Callable[..., IAsyncResult], *arguments: object, **options: object) -> Any:
    """The answer to what may be asked twice, over losses of the connection; kazoo itself would wait for ever.

    `call` is one of the client's `…_async` methods.
    """
    deadline = time.monotonic() + ANSWER_S
    while True:
        try:
            return call(*arguments, **options).get(timeout=max(0.0, deadline - time.monotonic()))
        except _OUTCOME_UNKNOWN as error:
            if time.monotonic() >= deadline:
                raise ServiceUnreachable(f"Cannot reach ZooKeeper: no answer for {ANSWER_S:.0f} s") from error
            time.sleep(_PAUSE_S)


def read(client: KazooClient, path: str, kind: type[Record]) -> Versioned[Record] | None:
    try:
        data, stat = ask(client.get_async, path)
    except NoNodeError:
        return None
    return Versioned(parse(kind, data), stat.version)


def read_many(client: KazooClient, wanted: Mapping[str, Watch | None], kind: type[Record]) -> dict[str, Record]:
    """The nodes that exist, asked all at once: a thousand take little longer than ten.

    A node's watch is called once, when it changes or goes or the connection is lost.
    """
    found = _gather({path: client.get_async(path, watch) for path, watch in wanted.items()})
    return {path: parse(kind, data) for path, (data, _) in found.items()}


def children_of_many(client: KazooClient, wanted: Mapping[str, Watch | None]) -> dict[str, list[str]]:
    """The same for the names below nodes."""
    return _gather({path: client.get_children_async(path, watch) for path, watch in wanted.items()})


def _gather(asked: Mapping[str, IAsyncResult]) -> dict[str, Any]:
    deadline = time.monotonic() + _MANY_S
    found: dict[str, Any] = {}
    for path, answer in asked.items():
        try:
            found[path] = answer.get(timeout=max(0.0, deadline - time.monotonic()))
        except NoNodeError:
            continue
        except _OUTCOME_UNKNOWN as error:
            raise ServiceUnreachable(f"Cannot read {len(asked)} nodes of ZooKeeper: {error!r}") from error
    return found


def children(client: KazooClient, path: str) -> list[str]:
    try:
        names: list[str] = ask(client.get_children_async, path)
    except NoNodeError:
        return []
    return sorted(names)


def ensure(client: KazooClient, path: str, record: object) -> None:
    """Create the node with this value unless it exists."""
    try:
        ask(client.create_async, path, dump(record), makepath=True)
    except NodeExistsError:
        return


def remove(client: KazooClient, path: str) -> None:
    """Nothing happens when there is no such node."""
    with suppress(NoNodeError):
        ask(client.delete_async, path)


class Transaction:
    """All or nothing. After a lost answer nothing is known until the caller has read back."""

    def __init__(self, client: KazooClient, act: str) -> None:
        self._client = client
        self._act = act
        self._request: TransactionRequest = client.transaction()
        self._ensured: set[str] = set()

    def put(self, path: str, record: object, *, version: int) -> None:
        """Compare-and-set; with version -1 the node must not exist yet."""
        if version == -1:
            self._request.create(path, dump(record))
        else:
            self._request.set_data(path, dump(record), version=version)

    def create(self, path: str) -> None:
        self._request.create(path, b"")

    def ensure(self, path: str) -> None:
        """After the commit the node exists; it fails if somebody makes or removes the node meanwhile."""
        if path in self._ensured:
            return
        self._ensured.add(path)
        if ask(self._client.exists_async, path):
            self.check_exists(path)
        else:
            self.create(path)

    def delete(self, path: str) -> None:
        self._request.delete(path)

    def check(self, path: str, *, version: int) -> None:
        self._request.check(path, version)

    def check_exists(self, path: str) -> None:
        self._request.check(path, -1)

    def commit(self) -> None:
        """Raise CommitFailed when nothing was written, CommitStateUnknown when the answer was lost."""
        try:
            results: list[Any] = self._request.commit_async().get(timeout=ANSWER_S)
        except _OUTCOME_UNKNOWN as error:
            raise CommitStateUnknown(f"Cannot tell whether '{self._act}' was committed: {error!r}") from error
        for operation, result in zip(self._request.operations, results, strict=False):
            if isinstance(result, NoAuthError):
                raise result
            if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
                raise CommitFailed(
                    f"Cannot commit '{self._act}': {type(operation).__name__} of {operation.path} found "
                    f"{type(result).__name__}; the state has moved on"
                )
        failed = [result for result in results if isinstance(result, Exception)]
        if failed:
            raise CommitFailed(f"Cannot commit '{self._act}': {failed[0]!r}")
