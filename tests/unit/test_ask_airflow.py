"""What `tidemark why` says of an Airflow that answers something odd."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from tidemark.environment import Connection
from tidemark.inspect.airflow import AskAirflow
from tidemark.names import Hour

HOUR = Hour.parse("2026-11-15T07")
TOKEN = (201, json.dumps({"access_token": "t"}))
LOGIN_PAGE = (200, "<html>\n<h1>Please log in</h1>\n</html>")
Answer = tuple[int, str]
Answering = Callable[[Answer, Answer], AskAirflow]


class Odd(BaseHTTPRequestHandler):
    token: ClassVar[Answer] = TOKEN
    rest: ClassVar[Answer] = TOKEN

    def do_POST(self) -> None:
        self._say(self.token)

    def do_GET(self) -> None:
        self._say(self.rest)

    def _say(self, answer: Answer) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.rfile.read(length)
        self.send_response(answer[0])
        self.end_headers()
        self.wfile.write(answer[1].encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def answering() -> Iterator[Answering]:
    """Asks an Airflow that gives these answers to whoever wants a token, and to all other questions."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        connection = Connection(conn_id="airflow_api", host=f"http://127.0.0.1:{server.server_port}", login="a")

        def make(token: Answer, rest: Answer) -> AskAirflow:
            Odd.token, Odd.rest = token, rest
            return AskAirflow(lambda _: connection)

        yield make
        server.shutdown()


@pytest.mark.parametrize(
    ("token", "rest", "told"),
    [
        ((502, "<html>\nBad Gateway\n</html>"), TOKEN, "502 <html> Bad Gateway </html>"),
        (LOGIN_PAGE, TOKEN, "wanted a JSON object"),
        ((200, "[]"), TOKEN, "wanted a JSON object"),
        ((200, "{}"), TOKEN, "its answer has no token"),
        ((401, ""), TOKEN, "it was refused"),
        (TOKEN, (500, "oops"), "500 oops"),
        (TOKEN, LOGIN_PAGE, "found '<html> <h1>Please log in</h1> </html>', wanted a JSON object"),
    ],
)
def test_an_airflow_that_answers_something_odd_was_not_asked(
    answering: Answering, token: Answer, rest: Answer, told: str
) -> None:
    [line] = answering(token, rest)("clicks", HOUR)
    assert line.startswith("Airflow was not asked: Cannot ")
    assert told in line
    assert "\n" not in line
