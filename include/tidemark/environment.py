"""The only module that reads the environment: connections, folders, switches.

Connections have Airflow's own form, `AIRFLOW_CONN_<ID>` in JSON or as a URI, so that one set of exports serves Airflow,
the Spark jobs and the command line. Tasks that run below Airflow get theirs from Airflow (see
`tidemark_airflow.connections`), which hands them on to Spark jobs in this form, through the environment and never
on a command line (ADR 32).
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

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
        value = _object(text) if text.lstrip().startswith("{") else _parse_uri(text)
        extra = value.get("extra") or {}
        port = value.get("port")
        return Connection(
            conn_id=conn_id,
            host=value.get("host"),
            port=int(port) if port is not None else None,
            login=value.get("login"),
            password=value.get("password"),
            extra=_object(extra) if isinstance(extra, str) else dict(extra),
        )
    except (ValueError, TypeError):
        # Neither the text nor what a parser says of it: both may hold a password.
        wanted = 'a JSON object such as {"host": "…", "port": 1234}, or a URI as Airflow takes it'
        message = f"Cannot read the connection {conn_id} from {variable_of(conn_id)}: wanted {wanted}"
        raise WrongUse(message) from None


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("no object")  # noqa: TRY004 - told like all that cannot be read
    return value


def _parse_uri(text: str) -> dict[str, Any]:
    """`type://login:password@host:port/?setting=value`, each part quoted; `__extra__` for settings in JSON."""
    parts = urlsplit(text)
    if not parts.scheme or "://" not in text:
        raise ValueError("no URI")
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    return {
        "host": unquote(parts.hostname or "") or None,
        "port": parts.port,
        "login": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
        "extra": settings.get("__extra__", settings),
    }


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


@contextmanager
def handing_on(variables: Mapping[str, str]) -> Iterator[None]:
    """Processes that are started meanwhile inherit these, too."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update({name: before[name] for name in variables if name in before})


def inherited_environment() -> dict[str, str]:
    """What a child process starts from."""
    return dict(os.environ)
