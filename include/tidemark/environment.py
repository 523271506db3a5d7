"""The only module that reads the environment: connections, folders, switches.

Connections have Airflow's own form, `AIRFLOW_CONN_<ID>` in JSON, so that one set of exports serves Airflow,
the Spark jobs and the command line. Tasks that run below Airflow get theirs from Airflow (see
`tidemark_airflow.connections`), which hands them on to Spark jobs in this form, through the environment and never
on a command line.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tidemark.errors import WrongUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    conn_id: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)


ZOOKEEPER = "zookeeper_default"
WEBHDFS = "webhdfs_default"
AIRFLOW = "airflow_api"


def kafka_connection(cluster: str) -> str:
    """The id of the connection to a cluster, as streams and timelines name it."""
    return f"kafka_{cluster}"


class Connections(Protocol):
    def __call__(self, conn_id: str) -> Connection:
        """Raise WrongUse when there is no such connection."""


def variable_of(conn_id: str) -> str:
    return f"AIRFLOW_CONN_{conn_id.upper()}"


def connection_from_environment(conn_id: str) -> Connection:
    name = variable_of(conn_id)
    text = os.environ.get(name)
    if not text:
        raise WrongUse(
            f"Cannot connect to {conn_id}: the variable {name} is not set; "
            'wanted a JSON object such as {"host": "…", "port": 1234} (try: eval "$(tidemark stack env)")'
        )
    return parse_connection(conn_id, text)


def parse_connection(conn_id: str, text: str) -> Connection:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise WrongUse(f"Cannot read the connection {conn_id}: {variable_of(conn_id)} is not a JSON object")
    extra = value.get("extra") or {}
    if isinstance(extra, str):
        extra = json.loads(extra)
    port = value.get("port")
    return Connection(
        conn_id=conn_id,
        host=value.get("host"),
        port=int(port) if port is not None else None,
        login=value.get("login"),
        password=value.get("password"),
        extra=extra,
    )


def dump_connection(connection: Connection) -> str:
    value = {
        "host": connection.host,
        "port": connection.port,
        "login": connection.login,
        "password": connection.password,
        "extra": dict(connection.extra),
    }
    return json.dumps({key: item for key, item in value.items() if item})


def repository_folder() -> Path:
    """The checkout (or image folder) that holds dags/, jobs/ and include/."""
    return Path(__file__).resolve().parents[2]


def streams_file() -> Path:
    """Where the streams are configured: TIDEMARK_STREAMS, else include/config/streams.yaml."""
    given = os.environ.get("TIDEMARK_STREAMS")
    return Path(given) if given else repository_folder() / "include" / "config" / "streams.yaml"


def stack_folder() -> Path:
    """Where the embedded stack keeps its state: TIDEMARK_HOME, else .tidemark in the checkout."""
    given = os.environ.get("TIDEMARK_HOME")
    return Path(given).resolve() if given else repository_folder() / ".tidemark"


def cache_folder() -> Path:
    """Where downloaded jars are kept: TIDEMARK_CACHE, else tidemark below the user's cache folder."""
    given = os.environ.get("TIDEMARK_CACHE")
    if given:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "tidemark"


def failpoint() -> str | None:
    """The failpoints that a test has armed: TIDEMARK_FAILPOINT, see `tidemark.failpoints`."""
    return os.environ.get("TIDEMARK_FAILPOINT")


def failpoint_witness() -> Path | None:
    """Where reached failpoints are written down: TIDEMARK_FAILPOINT_WITNESS."""
    given = os.environ.get("TIDEMARK_FAILPOINT_WITNESS")
    return Path(given) if given else None


def inherited_environment() -> dict[str, str]:
    """What a child process starts from."""
    return dict(os.environ)
