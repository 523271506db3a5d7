"""The board in this process, with services that do not answer: who may look is another file's matter."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from fastapi.testclient import TestClient
from httpx import Response
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from tests.pipeline import FIRST, TASK, interval_of
from tests.services import KafkaTopic, connections_of, unique

from tidemark.config import Stream, load_stream
from tidemark.drive.plan import plan_interval
from tidemark.environment import ZOOKEEPER, Connection
from tidemark.ledger import paths
from tidemark.stack import Stack

with (
    TemporaryDirectory(prefix="tidemark-airflow-") as _home,
    patch.dict(os.environ, {"_AIRFLOW__AS_LIBRARY": "1", "AIRFLOW_HOME": _home}),
):
    from tidemark_airflow.board import app as board
    from tidemark_airflow.triggers import session

Get = Callable[[str], Response]


@pytest.fixture
def stream(stack: Stack, tmp_path: Path) -> Stream:
    """Planned once, so that it has a timeline."""
    name = unique("away")
    file = tmp_path / "streams.yaml"
    file.write_text(f"streams: {{{name}: {{cluster: main, topic: {name}, root: 'hdfs:///away/{name}', owner: test}}}}")
    KafkaTopic(stack, name, 2)
    found = load_stream(file, name)
    plan_interval(found, interval_of(FIRST), connections_of(stack), TASK)
    return found


@pytest.fixture
def moved() -> dict[str, int]:
    """Connections that lead to another port."""
    return {}


@pytest.fixture
def get(stack: Stack, stream: Stream, moved: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Get]:
    def connection(conn_id: str) -> Connection:
        found = connections_of(stack)(conn_id)
        if conn_id not in moved:
            return found
        extra = {**found.extra, "bootstrap.servers": f"127.0.0.1:{moved[conn_id]}"}
        return replace(found, host="127.0.0.1", port=moved[conn_id], extra=extra)

    login = board.app.router.dependencies[0].dependency
    assert login
    monkeypatch.setattr(board.app, "dependency_overrides", {login: lambda: None, board.visible_stream: lambda: stream})
    monkeypatch.setattr(board, "connection_from_server", connection)
    monkeypatch.setattr(board, "_boards", {})
    browser = TestClient(board.app, raise_server_exceptions=False)
    yield lambda rest: browser.get(f"/api/streams/{stream.name}/{rest}")
    session._clients.clear()
    session._sessions.close()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < seconds


def test_without_zookeeper_it_says_so_in_a_bounded_time(get: Get, moved: dict[str, int], unused_port: int) -> None:
    moved[ZOOKEEPER] = unused_port
    with within(30):
        answer = get("calendar")
    assert (answer.status_code, answer.json()["detail"].split(" at ")[0]) == (503, "Cannot reach ZooKeeper")


def test_a_node_that_is_not_open_to_the_session_is_a_sentence(get: Get, stream: Stream, client: KazooClient) -> None:
    assert get("calendar").status_code == 200
    client.set_acls(paths.positions(stream.name), [make_digest_acl("another", "word", all=True)])
    answer = get("calendar")
    assert (answer.status_code, answer.json()) == (503, {"detail": "Cannot ask ZooKeeper: NoAuthError"})


def test_more_questions_than_it_may_ask_at_once_are_refused_soon(get: Get) -> None:
    with ExitStack() as asked, within(10):
        for _ in range(board._AT_ONCE):
            asked.enter_context(board._slots)
        answer = get("calendar")
    assert (answer.status_code, answer.json()["detail"].split(":")[0]) == (503, "Cannot look")
    assert get("calendar").status_code == 200


def test_without_kafka_the_graph_of_timelines_is_there_and_the_lag_is_not(
    get: Get, moved: dict[str, int], stream: Stream, unused_port: int
) -> None:
    moved[stream.kafka_connection] = unused_port
    (timeline,) = get("timelines").json()
    shards = [(row["shard"], row["next"], row["end"]) for row in timeline["shards"]]
    assert shards == [("0001-0", 0, None), ("0001-1", 0, None)]
    with within(45):
        answer = get("offsets")
    assert answer.status_code == 503
    assert f"Kafka at 127.0.0.1:{unused_port}" in answer.json()["detail"]
