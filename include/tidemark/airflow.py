"""Airflow from outside, through its REST API: what it knows of DAGs, runs and events. Nothing of it is imported."""

from collections.abc import Iterator
from typing import Any, Self

import requests

from tidemark.environment import AIRFLOW, Connections
from tidemark.errors import ServiceUnreachable, WrongUse

_TIMEOUT_S = 120
_PAGE = 100
_LONGEST_TOLD = 500


class AirflowApi:
    """Whatever answers as Airflow does not is a ServiceUnreachable: a proxy's error, a page of HTML."""

    def __init__(self, address: str, user: str, password: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._address = address.rstrip("/")
        self._timeout_s = timeout_s
        self._session = requests.Session()
        answer = self._request("POST", "/auth/token", json={"username": user, "password": password})
        if answer.status_code in (401, 403):
            raise WrongUse(f"Cannot log in to Airflow at {self._address} as {user!r}: it was refused")
        token = _json(answer).get("access_token")
        if token is None:
            raise ServiceUnreachable(f"Cannot log in to Airflow at {self._address}: its answer has no token")
        self._session.headers["Authorization"] = f"Bearer {token}"

    @classmethod
    def connect(cls, connections: Connections, *, timeout_s: float = _TIMEOUT_S) -> Self:
        connection = connections(AIRFLOW)
        return cls(connection.host or "", connection.login or "", connection.password or "", timeout_s=timeout_s)

    def find(self, path: str, **params: Any) -> Any:
        """None when there is no such thing."""
        answer = self._request("GET", path, params=params)
        return None if answer.status_code == 404 else _json(answer)

    def get(self, path: str, **params: Any) -> Any:
        return _json(self._request("GET", path, params=params))

    def rows(self, path: str, name: str, **params: Any) -> Iterator[dict[str, Any]]:
        """All rows, page by page."""
        offset = 0
        while True:
            page = self.get(path, limit=_PAGE, offset=offset, **params)[name]
            yield from page
            offset += len(page)
            if len(page) < _PAGE:
                return

    def start_run(self, dag: str, run: str, key: str, note: str) -> bool:
        """Of a DAG that is scheduled by assets. False when this run is there already."""
        body = {"dag_run_id": run, "logical_date": None, "partition_key": key, "note": note}
        answer = self._request("POST", f"/api/v2/dags/{dag}/dagRuns", json=body)
        if answer.status_code == 409:
            return False
        _json(answer)
        return True

    def _request(self, method: str, path: str, **kwargs: Any) -> requests.Response:
        try:
            return self._session.request(method, self._address + path, timeout=self._timeout_s, **kwargs)
        except requests.RequestException as error:
            raise ServiceUnreachable(f"Cannot reach Airflow at {self._address}: {error}") from error


def _json(answer: requests.Response) -> Any:
    if not answer.ok:
        raise ServiceUnreachable(f"Cannot ask Airflow for {answer.url}: {answer.status_code} {_begin_of(answer)}")
    try:
        found = answer.json()
    except requests.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise ServiceUnreachable(
            f"Cannot ask Airflow for {answer.url}: found {_begin_of(answer)!r}, wanted a JSON object"
        )
    return found


def _begin_of(answer: requests.Response) -> str:
    """In one line."""
    return " ".join(answer.text[:_LONGEST_TOLD].split())
