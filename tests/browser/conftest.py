from pathlib import Path

import pytest
from tests.board import MARKUP
from tests.rights import SETTINGS, THEIRS, create_users

from tidemark.demo.run import DAGS_PAUSED
from tidemark.stack import Stack


@pytest.fixture(scope="session")
def streams_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One stream, whose owner is markup."""
    path = tmp_path_factory.mktemp("config") / "streams.yaml"
    owner = MARKUP.replace('"', '\\"')
    path.write_text(
        "streams:\n"
        f"  {THEIRS}: {{topic: seen, root: 'hdfs:///browser/seen', offset_reset: earliest, cluster: main,"
        f' grace: 60s, max_clock_skew: 30s, owner: "{owner}"}}\n',
        "utf-8",
    )
    return path


@pytest.fixture(scope="session")
def airflow_environment(streams_file: Path) -> dict[str, str]:
    return {"TIDEMARK_STREAMS": str(streams_file), **DAGS_PAUSED, **SETTINGS}


@pytest.fixture(scope="session")
def airflow_stack(airflow_stack: Stack) -> Stack:
    create_users(airflow_stack)
    return airflow_stack
