"""Real services, started once for the whole run, on free ports and below a folder of their own."""

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings
from kazoo.client import KazooClient
from pyspark.sql import SparkSession
from tests.clusters import TwoClusters
from tests.services import connections_of
from typing_extensions import override
from xdist.scheduler import LoadScopeScheduling

from tidemark.ledger.zookeeper import open_session
from tidemark.stack import DATA_SERVICES, DEFAULT_SERVICES, SPARK_CLUSTER, Stack
from tidemark.stack.jars import jar_paths, resolve_jars
from tidemark.stack.java import find_java
from tidemark.stack.processes import HOME_MARK

# Machines are shared and noisy: no example fails for its time.
settings.register_profile("tidemark", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tidemark")


def pytest_sessionstart() -> None:
    """pytest ends its fixtures after Ctrl-C, but of itself not when it is asked to terminate."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


class FilesAndAirflow(LoadScopeScheduling):  # type: ignore[misc]
    """For `pytest -n`: one worker alone has an Airflow, and other files are not cut."""

    @override
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "airflow" if _needs_airflow(self.config.rootpath / file) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesAndAirflow:
    return FilesAndAirflow(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest begin and the many short ones come last, so that the workers end together."""
    items.sort(key=lambda item: (not _needs_airflow(item.path), item.path.parent.name not in ("integration", "spark")))


@cache
def _needs_airflow(file: Path) -> bool:
    return "airflow_stack" in file.read_text()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker that is interrupted has a few seconds only, then it is killed: its stacks are ended here."""
    if session.config.getoption("numprocesses", None):
        below = str(session.config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined]
        marks = [(process.info["environ"] or {}).get(HOME_MARK, "") for process in psutil.process_iter(["environ"])]
        for home in {mark for mark in marks if mark.startswith(below)}:
            Stack(Path(home)).down()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """ZooKeeper, Kafka and HDFS. A test that ends one of them starts it again."""
    stack = Stack(tmp_path_factory.mktemp("stack"))
    try:
        stack.up(DATA_SERVICES)
        yield stack
    finally:
        stack.down()


@pytest.fixture(scope="session")
def clusters(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoClusters]:
    """The shared stack and a second broker."""
    other = Stack(tmp_path_factory.mktemp("other-cluster"))
    try:
        other.up(("kafka",))
        yield TwoClusters(main=stack, other=other)
    finally:
        other.down()


@pytest.fixture(scope="session")
def airflow_environment() -> dict[str, str]:
    """What Airflow's services get beyond the stack's own settings; a folder of tests may override it."""
    return {}


@pytest.fixture(scope="session")
def airflow_stack(stack: Stack, airflow_environment: dict[str, str]) -> Stack:
    """The same stack with Airflow, started when the first test asks for it."""
    stack.up(DEFAULT_SERVICES, extra_environment=airflow_environment)
    return stack


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A master and two workers, a stack of their own: only the Spark connection of others changes."""
    stack = Stack(tmp_path_factory.mktemp("spark-cluster"))
    try:
        stack.up(SPARK_CLUSTER)
        yield stack
    finally:
        stack.down()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def sessions() -> Iterator[ExitStack]:
    """What a test opened ends with it."""
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def client(stack: Stack, sessions: ExitStack) -> KazooClient:
    return sessions.enter_context(open_session(connections_of(stack)))


@pytest.fixture
def environment(stack: Stack) -> dict[str, str]:
    """What a client of the shared stack has to set."""
    return stack.environment()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    resolve_jars(["spark"], find_java(print), print)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(path) for path in jar_paths("spark")))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()
