"""Two users of the tests' Airflow: one who may see everything, one who may see the DAG of one stream."""

from tidemark.environment import repository_folder

NARROW = "narrow"
THEIRS = "seen"
"""The one stream that the narrow user may see."""

SETTINGS = {
    "AIRFLOW__CORE__AUTH_MANAGER": "tests.auth_manager.PerDagAuthManager",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"admin:admin,{NARROW}:viewer",
    "PYTHONPATH": str(repository_folder()),
}
