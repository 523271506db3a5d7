"""One request to WebHDFS: what may be asked again, and what the answer means.

A request that never left, or that the NameNode put off (standby, safe mode), was not carried out and can be
sent again. When only the answer is missing it may have been, and who asked must know: that is `AnswerLost`.
"""

import http.client
import json
from collections.abc import Callable
from typing import Any, TypeVar

import requests
import tenacity
import urllib3.exceptions
from hdfs import HdfsError, InsecureClient
from hdfs.client import _Request
from requests.adapters import HTTPAdapter

from tidemark.environment import Connection
from tidemark.errors import AlreadyExists, NotFound, ServiceUnreachable, TidemarkError, WrongUse

T = TypeVar("T")

_POOL_SIZE = 16
_PUT_OFF = frozenset({"StandbyException", "RetriableException", "SafeModeException"})
_MEANINGS: dict[str, type[TidemarkError]] = {
    "FileNotFoundException": NotFound,
    "FileAlreadyExistsException": AlreadyExists,
    "ParentNotDirectoryException": WrongUse,
    "PathIsNotEmptyDirectoryException": WrongUse,
    "InvalidPathException": WrongUse,
} | dict.fromkeys(_PUT_OFF, ServiceUnreachable)
_BROKEN = (requests.Timeout, requests.ConnectionError, requests.exceptions.ChunkedEncodingError)
_NO_DATANODE = "Failed to find datanode"
# What a DataNode says that finds its own connection to the NameNode broken: it may have been carried out.
_BROKEN_BEHIND = "End of File Exception between local host"


class AnswerLost(Exception):
    """The request was sent and the connection broke: it may have been carried out."""


class Client(InsecureClient):  # type: ignore[misc]
    """The package's client, but it never asks the next NameNode for what the first may have done already."""

    _get_server_defaults = _Request("GET")

    def __init__(self, connection: Connection, timeout: tuple[float, float]) -> None:
        session = requests.Session()
        session.trust_env = False
        session.mount("http://", HTTPAdapter(pool_connections=_POOL_SIZE, pool_maxsize=_POOL_SIZE))
        if connection.password:
            session.auth = (connection.login or "", connection.password)
        super().__init__(url_of(connection), user=connection.login, timeout=timeout, session=session)

    def resolve(self, hdfs_path: str) -> str:
        """Paths come whole; the package would read a name such as `#LATEST` as a wish."""
        return hdfs_path

    def bean(self, name: str) -> dict[str, Any] | None:
        """What the NameNode that answered last shows to monitoring; None where it shows nothing."""
        response = self._request("GET", f"{self._urls[0].rstrip('/')}/jmx", params={"qry": name})
        found = response.json().get("beans") if response.ok else None
        return found[0] if found else None

    def _request(self, method: str, url: str, **settings: Any) -> requests.Response:
        try:
            response: requests.Response = super()._request(method, url, **settings)
        except requests.ConnectTimeout:
            raise
        except _BROKEN as error:
            if _was_never_sent(error):
                raise
            raise AnswerLost(str(error)) from error
        return response


def url_of(connection: Connection) -> str:
    """Several NameNodes are given as `host1,host2`, as Airflow has it."""
    if not connection.host:
        raise WrongUse(f"Cannot use the connection {connection.conn_id}: found no host, wanted the NameNode's")
    return ";".join(f"http://{host.strip()}:{connection.port or 9870}" for host in connection.host.split(","))


def ask(act: str, request: Callable[[], T], seconds: float, *, repeat_lost: bool = True) -> T:
    """Ask until there is an answer, for at most `seconds`; `act` says what for, with path and host.

    With `repeat_lost=False` an `AnswerLost` goes to the caller, who has to find out what happened.
    """
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(lambda error: _can_be_repeated(error, repeat_lost)),
        wait=tenacity.wait_random_exponential(multiplier=0.1, max=2),
        stop=tenacity.stop_before_delay(seconds),
        reraise=True,
    )
    try:
        return retrying(request)
    except HdfsError as error:
        raise meaning_of(error, act) from error
    except AnswerLost as error:
        if not repeat_lost:
            raise
        raise unreachable(act, error) from error
    except (OSError, http.client.HTTPException) as error:
        raise unreachable(act, error) from error


def unreachable(act: str, error: Exception) -> ServiceUnreachable:
    return ServiceUnreachable(f"Cannot {act}: WebHDFS does not answer ({_first_line(str(error))})")


def meaning_of(refusal: HdfsError, act: str) -> TidemarkError:
    kind = _MEANINGS.get(refusal.exception, TidemarkError)
    if _NO_DATANODE in str(refusal) or _BROKEN_BEHIND in str(refusal):
        kind = ServiceUnreachable
    return kind(f"Cannot {act}: {_first_line(str(refusal))} ({refusal.exception or 'no exception named'})")


def refusal_in(answer: http.client.HTTPResponse) -> HdfsError:
    body = answer.read(1 << 16).decode(errors="replace")
    try:
        remote = json.loads(body)["RemoteException"]
        return HdfsError(remote["message"], exception=remote["exception"])
    except (ValueError, KeyError, TypeError):
        return HdfsError(body, exception=f"HTTP {answer.status}")


def _can_be_repeated(error: BaseException, repeat_lost: bool) -> bool:
    if isinstance(error, HdfsError):
        return error.exception in _PUT_OFF or _NO_DATANODE in str(error)
    if isinstance(error, AnswerLost):
        return repeat_lost
    kinds = (requests.ConnectionError, ConnectionError, TimeoutError, http.client.HTTPException)
    return isinstance(error, kinds)


def _was_never_sent(error: requests.RequestException) -> bool:
    cause = error.args[0] if error.args else None
    return isinstance(getattr(cause, "reason", None), urllib3.exceptions.NewConnectionError)


def _first_line(text: str) -> str:
    return next(iter(text.splitlines()), "no reason given")[:300]
