"""One ZooKeeper session for all that waits in a triggerer, however many sensors that are, or looks at the board."""

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tidemark.environment import Connection, dump_connection
from tidemark.errors import ServiceUnreachable

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_opening = threading.Lock()
# Kept as long as the process: a session ends with it, and kazoo makes a new one when it expires.
_sessions = ExitStack()
_clients: "dict[str, KazooClient]" = {}


def shared_client(connection: Connection, wait_s: float = 0.0) -> "KazooClient":
    """Raise ServiceUnreachable also while another thread is connecting for longer than `wait_s`.

    Who waits in a triggerer asks again anyway.
    """
    from tidemark.ledger.zookeeper import open_session

    key = dump_connection(connection)
    if key in _clients:
        return _clients[key]
    if not _opening.acquire(timeout=wait_s):
        raise ServiceUnreachable("Cannot ask ZooKeeper: the session is being opened")
    try:
        if key not in _clients:
            _clients[key] = _sessions.enter_context(open_session(lambda _: connection))
        return _clients[key]
    finally:
        _opening.release()
