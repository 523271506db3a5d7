"""DAGs are parsed in a child process with a home of its own, as Airflow parses them, so that imports can be counted."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidemark.environment import repository_folder

PROBE = Path(__file__).with_name("probe.py")


@pytest.fixture(scope="session")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("airflow-home")


def parse_dags(home: Path, streams: Path | None = None) -> Any:
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(repository_folder() / "plugins"),
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    }
    if streams:
        environment["TIDEMARK_STREAMS"] = str(streams)
    done = subprocess.run(
        [sys.executable, str(PROBE), str(repository_folder() / "dags")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def dags(airflow_home: Path) -> Any:
    """What Airflow makes of the DAG folder with the streams that are shipped."""
    return parse_dags(airflow_home)
