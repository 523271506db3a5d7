"""What Airflow loads of Tidemark by itself, from its plugins folder."""

from airflow.plugins_manager import AirflowPlugin

from tidemark_airflow import pool
from tidemark_airflow.board import board


class TidemarkPlugin(AirflowPlugin):
    name = "tidemark"
    # Lists, as Airflow wants them.
    listeners = [pool]  # noqa: RUF012
    fastapi_apps = [{"app": board, "url_prefix": "/readiness", "name": "Readiness"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {"name": "Readiness", "href": "readiness/", "destination": "nav", "url_route": "readiness"}
    ]
