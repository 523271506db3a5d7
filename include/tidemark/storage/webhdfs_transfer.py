"""Bytes to and from a DataNode, in constant memory.

Not the package's `write`: its queue has no bound (a slow DataNode fills the memory), an error in its thread
is told only at the end, and a block that raises ends the transfer as if it were complete. Pushed from here,
a full socket holds the writer back, no thread is needed, and it is as fast as `curl -T`. Not its `read`
either: behind a buffer it copies each byte twice more than `recv_into` does, for four times the time.
"""

import http.client
import io
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from requests.utils import requote_uri

from tidemark.storage.webhdfs_calls import meaning_of, refusal_in, unreachable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_CONNECT_SECONDS = 5
# A DataNode may be silent while it mends its pipeline, so it gets longer than a NameNode.
_SILENCE_SECONDS = 120
_PARTING_SECONDS = 5


class Upload:
    """The sink of one file at the place that the NameNode named; `act` is what errors say that it was for."""

    def __init__(self, location: str, act: str) -> None:
        """Raise the OSError of a DataNode that cannot be connected: nothing was sent then."""
        self._http, self._target = _connect(location)
        self._line: socket.socket = self._http.sock
        self._act = act
        self.written = 0

    def __enter__(self) -> Self:
        try:
            self._http.putrequest("PUT", self._target, skip_accept_encoding=True)
            self._http.putheader("Content-Type", "application/octet-stream")
            self._http.putheader("Transfer-Encoding", "chunked")
            self._http.endheaders()
        except OSError as error:
            raise unreachable(self._act, error) from error
        return self

    def write(self, data: bytes | memoryview, /) -> int:
        size = memoryview(data).nbytes
        if size:
            self._send(b"".join((b"%x\r\n" % size, data, b"\r\n")))
            self.written += size
        return size

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._finish()
            else:
                self._part()
        finally:
            self._http.close()

    def _finish(self) -> None:
        self._send(b"0\r\n\r\n")
        try:
            answer = self._http.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise unreachable(self._act, error) from error
        if answer.status != http.HTTPStatus.CREATED:
            raise meaning_of(refusal_in(answer), self._act)

    def _send(self, data: bytes) -> None:
        try:
            self._http.send(data)
        except OSError as error:
            self._explain(error)

    def _explain(self, error: OSError) -> None:
        """A DataNode that refuses says why and hangs up; that answer is worth more than the broken pipe."""
        try:
            self._line.settimeout(_PARTING_SECONDS)
            answer = self._http.getresponse()
        except (OSError, http.client.HTTPException):
            raise unreachable(self._act, error) from error
        raise meaning_of(refusal_in(answer), self._act) from error

    def _part(self) -> None:
        """Wait until the DataNode hangs up: a file that it made after we deleted it would stay for ever."""
        with suppress(OSError):
            self._line.settimeout(_PARTING_SECONDS)
            self._line.shutdown(socket.SHUT_WR)
            while self._line.recv(1 << 16):
                pass


class Download(io.RawIOBase):
    """Goes on where it was when the connection breaks: files do not change.

    `locate` says where to read from an offset on; `ask` repeats what can be repeated.
    """

    def __init__(self, locate: Callable[[int], str], ask: Callable[[Callable[[], int]], int], start: int) -> None:
        self._locate = locate
        self._ask = ask
        self._position = start
        self._answer: http.client.HTTPResponse | None = None
        self._ask(lambda: self._pull(memoryview(bytearray())))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        count = self._ask(lambda: self._pull(view))
        self._position += count
        return count

    def close(self) -> None:
        self._hang_up()
        super().close()

    def _pull(self, view: memoryview) -> int:
        try:
            if self._answer is None:
                self._answer = _get(self._locate(self._position))
            return _read_into(self._answer, view)
        except BaseException:
            self._hang_up()
            raise

    def _hang_up(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None


def _connect(location: str) -> tuple[http.client.HTTPConnection, str]:
    """The connection and what to ask for there; the NameNode leaves letters beyond ASCII as they are."""
    place = urlsplit(requote_uri(location))
    connection = http.client.HTTPConnection(place.netloc, timeout=_CONNECT_SECONDS)
    connection.connect()
    connection.sock.settimeout(_SILENCE_SECONDS)
    return connection, f"{place.path}?{place.query}"


def _get(location: str) -> http.client.HTTPResponse:
    connection, target = _connect(location)
    with ExitStack() as on_error:
        on_error.callback(connection.close)
        connection.request("GET", target, headers={"Connection": "close"})
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise refusal_in(answer)
        on_error.pop_all()
    return answer


def _read_into(answer: http.client.HTTPResponse, view: memoryview) -> int:
    count = answer.readinto(view)
    if view and not count and answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
    return count
