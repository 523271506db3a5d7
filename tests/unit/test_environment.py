import pytest

from tidemark.environment import Connection, connection_from_environment, dump_connection, parse_connection
from tidemark.errors import WrongUse


def test_a_connection_is_read_from_airflows_own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_MAIN", '{"conn_type": "kafka", "extra": {"bootstrap.servers": "h:1"}}')
    assert connection_from_environment("kafka_main").extra == {"bootstrap.servers": "h:1"}


def test_a_missing_connection_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_KAFKA_MAIN", raising=False)
    with pytest.raises(WrongUse, match="the variable AIRFLOW_CONN_KAFKA_MAIN is not set"):
        connection_from_environment("kafka_main")


@pytest.mark.parametrize("text", ["spark://x", "[]", "{"])
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="AIRFLOW_CONN_X is not a JSON object"):
        parse_connection("x", text)


def test_a_connection_survives_its_way_through_the_environment() -> None:
    connection = Connection(conn_id="x", host="h", port=7, login="l", password="p", extra={"a": [1]})
    assert parse_connection("x", dump_connection(connection)) == connection


def test_a_password_is_not_shown() -> None:
    shown = repr(Connection(conn_id="x", password="hunter2", extra={"sasl.password": "hunter3"}))
    assert "hunter" not in shown
