import socket
from pathlib import Path

import pytest

from tidemark.demo.run import DAGS_PAUSED

STREAM = "cluster: main, owner: tests, grace: 60s, max_clock_skew: 30s"


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def streams_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The streams that the shared Airflow knows: one for its scheduler, one for the Spark cluster."""
    path = tmp_path_factory.mktemp("config") / "streams.yaml"
    path.write_text(
        "streams:\n"
        f"  clicks: {{topic: clicks, root: 'hdfs:///airflow/clicks', timestamp: message, {STREAM}}}\n"
        f"  spread: {{topic: spread, root: 'hdfs:///airflow/spread', {STREAM}}}\n",
        "utf-8",
    )
    return path


@pytest.fixture(scope="session")
def airflow_environment(streams_file: Path) -> dict[str, str]:
    return {"TIDEMARK_STREAMS": str(streams_file), **DAGS_PAUSED}
