from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rights import SETTINGS, THEIRS, create_users
from tests.statsd import StatsdServer, statsd_server

from tidemark.demo.run import DAGS_PAUSED
from tidemark.stack import Stack

STREAM = "cluster: main, owner: tests, grace: 60s, max_clock_skew: 30s"


@pytest.fixture(scope="session")
def streams_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The streams that the shared Airflow knows: for its scheduler, for the Spark cluster, for the board."""
    path = tmp_path_factory.mktemp("config") / "streams.yaml"
    path.write_text(
        "streams:\n"
        f"  clicks: {{topic: clicks, root: 'hdfs:///airflow/clicks', timestamp: message, {STREAM}}}\n"
        f"  payments: {{topic: payments, root: 'hdfs:///airflow/payments', {STREAM}}}\n"
        f"  idle: {{topic: idle, root: 'hdfs:///airflow/idle', {STREAM}}}\n"
        f"  young: {{topic: young, root: 'hdfs:///airflow/young', start: latest, {STREAM}}}\n"
        f"  spread: {{topic: spread, root: 'hdfs:///airflow/spread', {STREAM}}}\n"
        f"  secured: {{topic: secured, root: 'hdfs:///airflow/secured', {STREAM.replace('main', 'secured')}}}\n"
        f"  {THEIRS}: {{topic: seen, root: 'hdfs:///airflow/seen', offset_reset: earliest, {STREAM}}}\n",
        "utf-8",
    )
    return path


@pytest.fixture(scope="session")
def statsd() -> Iterator[StatsdServer]:
    """Where the shared Airflow sends its metrics."""
    with statsd_server() as server:
        yield server


@pytest.fixture(scope="session")
def airflow_environment(streams_file: Path, statsd: StatsdServer) -> dict[str, str]:
    return {"TIDEMARK_STREAMS": str(streams_file), **DAGS_PAUSED, **SETTINGS, **statsd.settings()}


@pytest.fixture(scope="session")
def airflow_stack(airflow_stack: Stack) -> Stack:
    create_users(airflow_stack)
    return airflow_stack
