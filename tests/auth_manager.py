"""An auth manager with rights for each DAG, which Airflow's simple one has not: loaded by Airflow's services."""

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from tests.rights import NARROW, THEIRS
from typing_extensions import override


class PerDagAuthManager(SimpleAuthManager):
    @override
    def is_authorized_dag(self, *, user: SimpleAuthManagerUser, details: Any = None, **asked: Any) -> bool:
        is_theirs = details is not None and details.id == f"ingest_{THEIRS}"
        may_look = user.get_name() != NARROW or is_theirs
        return may_look and super().is_authorized_dag(user=user, details=details, **asked)
