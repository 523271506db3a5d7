"""Airflow: its four services on SQLite, tasks as processes of the scheduler."""

import json
import os
import shutil
import sys
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from typing_extensions import override

from tidemark.environment import AIRFLOW, cache_folder, repository_folder, variable_of
from tidemark.stack.files import write_whole
from tidemark.stack.http import get_json
from tidemark.stack.lock import hold_lock
from tidemark.stack.ports import HOST
from tidemark.stack.service import RunTool, Service, Site

ADMIN = "admin"
API_SERVER = "api-server"


class AirflowService(Service):
    def __init__(self, name: str, *arguments: str, health: str) -> None:
        self.name = name
        self._arguments = arguments
        self._health = health
        is_server = name == API_SERVER
        self.ports = ("airflow",) if is_server else ()
        self.needs = () if is_server else (API_SERVER,)

    @override
    def prepare(self, site: Site, run: RunTool) -> None:
        """The server alone: the others are started after it was prepared."""
        if self.name == API_SERVER:
            write_whole(_passwords_file(site), json.dumps({ADMIN: site.secrets.admin_password}))
            _provide_database(site, run)

    @override
    def command(self, site: Site) -> list[str]:
        return airflow_command(self.name, *self._arguments)

    @override
    def address(self, site: Site) -> str:
        return _address(site) if self.name == API_SERVER else ""

    @override
    def lacks(self, site: Site, started: float) -> str | None:
        part = get_json(site.ports["airflow"], "/api/v2/monitor/health")[self._health]
        if part["status"] != "healthy":
            return "a healthy state"
        # A service that ended a moment ago still counts as healthy: the beat must be of this process.
        beat = part.get(f"latest_{self._health}_heartbeat")
        is_ours = beat is None or datetime.fromisoformat(beat).timestamp() >= started
        return None if is_ours else "its first heartbeat"

    @override
    def exports(self, site: Site) -> dict[str, str]:
        return _exports(site) if self.name == API_SERVER else {}


# Tasks and triggers log to files that the server reads: no log servers, which would listen on all addresses.
AIRFLOW_SERVICES = (
    AirflowService(API_SERVER, health="metadatabase"),
    AirflowService("scheduler", "--skip-serve-logs", health="scheduler"),
    AirflowService("dag-processor", health="dag_processor"),
    AirflowService("triggerer", "--skip-serve-logs", health="triggerer"),
)


def airflow_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "airflow", *arguments]


def _exports(site: Site) -> dict[str, str]:
    address = _address(site)
    connection = {"conn_type": "http", "host": address, "login": ADMIN, "password": site.secrets.admin_password}
    return {
        "AIRFLOW_HOME": str(_home(site)),
        "TIDEMARK_UI": address,
        variable_of(AIRFLOW): json.dumps(connection),
        **{f"AIRFLOW__{name}": value for name, value in _settings(site, address).items()},
    }


def _settings(site: Site, address: str) -> dict[str, str]:
    repository = repository_folder()
    return {
        "DATABASE__SQL_ALCHEMY_CONN": _database_url(_database(site)),
        "DATABASE__SQL_ALCHEMY_CONNECT_ARGS": "tidemark.stack.sqlite.CONNECT_ARGS",
        "CORE__EXECUTOR": "LocalExecutor",
        "CORE__PARALLELISM": "6",
        "CORE__DAGS_FOLDER": str(repository / "dags"),
        "CORE__PLUGINS_FOLDER": str(repository / "plugins"),
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "5",
        "CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
        "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{ADMIN}:admin",
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(_passwords_file(site)),
        "CORE__FERNET_KEY": site.secrets.fernet_key,
        "API__HOST": HOST,
        "API__PORT": str(site.ports["airflow"]),
        "API__BASE_URL": address,
        "API__WORKERS": "1",
        "API__SECRET_KEY": site.secrets.session_key,
        "API_AUTH__JWT_SECRET": site.secrets.jwt_secret,
        "WORKERS__EXECUTION_API_TIMEOUT": "60",
        "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
        "DAG_PROCESSOR__REFRESH_INTERVAL": "10",
        "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
        "DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "LOGGING__COLORED_CONSOLE_LOG": "False",
    }


def _provide_database(site: Site, run: RunTool) -> None:
    database = _database(site)
    if not database.exists():
        staged = database.with_suffix(".staged")
        shutil.copy(_migrated_database(site, run), staged)
        os.replace(staged, database)


def _migrated_database(site: Site, run: RunTool) -> Path:
    """An empty database of this version of Airflow; made once, as that takes longer than all else."""
    cached = cache_folder() / _database(site).name
    with hold_lock(cached.with_suffix(".lock")):
        if not cached.exists():
            with TemporaryDirectory(dir=cached.parent, prefix="airflow-") as folder:
                staged = Path(folder) / cached.name
                setting = f"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN={_database_url(staged)}"
                run("airflow-migrate", ["env", setting, *airflow_command("db", "migrate")])
                os.replace(staged, cached)
    return cached


def _database_url(database: Path) -> str:
    return f"sqlite:///{database}?timeout=60"


def _database(site: Site) -> Path:
    """Named after its version: after an upgrade a new one is made, the old one stays."""
    return _home(site) / f"airflow-{version('apache-airflow')}.db"


def _passwords_file(site: Site) -> Path:
    return _home(site) / "passwords.json"


def _home(site: Site) -> Path:
    return site.home / "airflow"


def _address(site: Site) -> str:
    return f"http://{HOST}:{site.ports['airflow']}"
