"""What operators and triggers log says which stream, and which hour or day, it is about."""

from types import SimpleNamespace
from typing import NoReturn
from unittest.mock import Mock

import pytest

from tidemark.config import Stream
from tidemark.drive.retain import Listed
from tidemark.environment import Connection
from tidemark.errors import ServiceUnreachable
from tidemark.names import Day
from tidemark.retain import OldDay
from tidemark_airflow.operators.retain import ListOldDaysOperator
from tidemark_airflow.triggers import ready
from tidemark_airflow.triggers.ready import ReadyTrigger


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Mock:
    log = Mock()
    for kind in (ReadyTrigger, ListOldDaysOperator):
        monkeypatch.setattr(kind, "log", property(lambda _: log), raising=False)
    return log


def told(call: Mock) -> str:
    (text, *values), _ = call.call_args
    return str(text % tuple(values))


def test_a_trigger_that_cannot_ask_says_for_what(log: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_away(_: Connection) -> NoReturn:
        raise ServiceUnreachable("Cannot reach ZooKeeper")

    monkeypatch.setattr(ready, "shared_client", is_away)
    trigger = ReadyTrigger(stream="clicks", subject="2026-11-15T07", revision=1, deadline=0)
    assert trigger._ask(Connection(conn_id="zookeeper_default")) == 0
    assert told(log.warning) == "Cannot reach ZooKeeper stream=clicks hour=2026-11-15T07"


def test_an_old_day_is_listed_with_its_stream(log: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = Listed(days=(OldDay(day=Day("2026-11-15"), held="it is not ready"),), token=None)
    monkeypatch.setattr("tidemark.drive.retain.list_old_days", lambda *_: listed)
    monkeypatch.setattr("tidemark_airflow.operators.retain.task_of", lambda _: SimpleNamespace())
    settings = {"name": "clicks", "cluster": "main", "topic": "clicks", "root": "file:///any", "owner": "tests"}
    ListOldDaysOperator(task_id="list", stream=Stream.model_validate(settings)).execute({})
    assert told(log.info) == "stays: it is not ready stream=clicks day=2026-11-15"
