"""The examples of docs/reference/connections.md mean to us what they mean to Airflow."""

import re
from dataclasses import replace

import pytest
from airflow.models.connection import Connection as Airflows

from tidemark.environment import parse_connection, repository_folder
from tidemark.kafka_options import java_settings
from tidemark.ledger.zookeeper import _credentials

PAGE = repository_folder() / "docs" / "reference" / "connections.md"
EXAMPLES = re.findall(r"^export AIRFLOW_CONN_([A-Z_]+)='(.+)'$", PAGE.read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("variable", "text"), EXAMPLES)
def test_an_example_is_read_as_airflow_reads_it(variable: str, text: str) -> None:
    ours = parse_connection(variable.lower(), text)
    airflows = Airflows.from_json(text) if text.startswith("{") else Airflows(uri=text)
    assert (ours.host or "", ours.port, ours.login, ours.password) == (
        airflows.host or "",
        airflows.port,
        airflows.login,
        airflows.password,
    )
    assert ours.extra == airflows.extra_dejson


def test_the_page_has_each_kind_and_each_can_be_used() -> None:
    found = [parse_connection(variable.lower(), text) for variable, text in EXAMPLES]
    secured = [one for one in found if one.extra.get("security.protocol")]
    assert len(secured) == 2
    for one in secured:
        settings = java_settings(replace(one, extra={**one.extra, "ssl.ca.location": str(PAGE)}))
        assert 'password="…"' in settings["sasl.jaas.config"]
    digest = [one for one in found if one.conn_id == "zookeeper_default" and one.password]
    assert len(digest) == 2
    assert all(_credentials(one)["auth_data"] == [("digest", "tidemark:…")] for one in digest)
