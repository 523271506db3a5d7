"""Two users of the tests' Airflow, by FAB: one who may see everything, one who may see the DAG of one stream."""

from typing import Any

import requests
from tests.commands import airflow_command
from tests.waiting import wait_until

from tidemark.demo.airflow import AirflowClient
from tidemark.stack import Stack

NARROW = "narrow"
THEIRS = "seen"
"""The one stream that the narrow user may see."""

SETTINGS = {"AIRFLOW__CORE__AUTH_MANAGER": "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager"}

_ROLE = "one_dag"
# Airflow shows a plugin's page within its own to who may read plugins: of FAB's roles, from Op on.
_RESOURCES = ("Website", "Plugins", f"DAG:ingest_{THEIRS}")
_RIGHTS = [{"action": {"name": "can_read"}, "resource": {"name": name}} for name in _RESOURCES]


def create_users(stack: Stack) -> None:
    """FAB begins with none: the first one by its command, the role and the other one by its API."""
    login = stack.login()
    who = ("--username", login.user, "--firstname", "A", "--lastname", "B", "--email", "a@example.org")
    airflow_command(
        "users", "create", *who, "--role", "Admin", "--password", login.password, environment=stack.environment()
    )
    airflow = AirflowClient(login.address, login.user, login.password, stack.environment())
    # Airflow makes a DAG known to FAB when it reads its file.
    wait_until(lambda: _create_role(airflow).ok, f"FAB knows ingest_{THEIRS}")
    narrow = {"username": NARROW, "first_name": "C", "last_name": "D", "email": "c@example.org"}
    body: dict[str, Any] = {**narrow, "password": login.password, "roles": [{"name": _ROLE}]}
    airflow._request("POST", "/auth/fab/v1/users", json=body).raise_for_status()


def _create_role(airflow: AirflowClient) -> requests.Response:
    answer = airflow._request("POST", "/auth/fab/v1/roles", json={"name": _ROLE, "actions": _RIGHTS})
    assert answer.ok or "was not found" in answer.text, answer.text
    return answer


def token_of(stack: Stack, user: str) -> str:
    """Both have the password of the stack's own user."""
    login = stack.login()
    body = {"username": user, "password": login.password}
    answer = requests.post(f"{login.address}/auth/token", json=body, timeout=60)
    answer.raise_for_status()
    return str(answer.json()["access_token"])
