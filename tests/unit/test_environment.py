import json
import subprocess
import traceback

import pytest
from airflow.sdk import Connection as Airflows
from hypothesis import given
from hypothesis import strategies as st

from tidemark.environment import (
    Connection,
    connection_from_environment,
    dump_connection,
    handing_on,
    parse_connection,
)
from tidemark.errors import WrongUse


def test_a_connection_is_read_from_airflows_own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_MAIN", '{"conn_type": "kafka", "extra": {"bootstrap.servers": "h:1"}}')
    assert connection_from_environment("kafka_main").extra == {"bootstrap.servers": "h:1"}


def test_a_missing_connection_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_KAFKA_MAIN", raising=False)
    with pytest.raises(WrongUse, match="the variable AIRFLOW_CONN_KAFKA_MAIN is not set"):
        connection_from_environment("kafka_main")


@pytest.mark.parametrize(
    "text", ["", "hunter2", "[]", "{", '{"port": "hunter2"}', '{"extra": "hunter2"}', '{"extra": [1]}', "x://h:hunter2"]
)
def test_what_is_neither_an_object_nor_a_uri_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(WrongUse, match="Cannot read the connection x from AIRFLOW_CONN_X: wanted a JSON") as refused:
        parse_connection("x", text)
    assert "hunter2" not in "".join(traceback.format_exception(refused.value)).replace(repr(text), "")


printable = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=20)


@given(
    login=st.none() | printable,
    password=st.none() | printable,
    port=st.none() | st.integers(1, 65535),
    extra=st.dictionaries(printable, printable | st.integers(), max_size=3),
)
def test_a_uri_means_what_it_means_to_airflow(
    login: str | None, password: str | None, port: int | None, extra: dict[str, object]
) -> None:
    wanted = Airflows(
        conn_id="x", conn_type="kafka", host="h", port=port, login=login, password=password, extra=json.dumps(extra)
    )
    found = parse_connection("x", wanted.get_uri())
    assert (found.host, found.port, found.login, found.password) == ("h", port, login, password)
    assert found.extra == extra


def test_a_connection_survives_its_way_through_the_environment() -> None:
    connection = Connection(conn_id="x", host="h", port=7, login="l", password="p", extra={"a": [1]})
    assert parse_connection("x", dump_connection(connection)) == connection


def test_a_password_is_not_shown() -> None:
    shown = repr(Connection(conn_id="x", password="hunter2", extra={"sasl.password": "hunter3"}))
    assert "hunter" not in shown


def test_what_is_handed_on_is_seen_by_children_only_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "before")
    monkeypatch.delenv("NEW", raising=False)
    show = ["sh", "-c", "echo $KEPT $NEW"]
    with handing_on({"KEPT": "meanwhile", "NEW": "added"}):
        assert subprocess.check_output(show, text=True) == "meanwhile added\n"
    assert subprocess.check_output(show, text=True) == "before\n"
