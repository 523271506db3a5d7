"""What Airflow loads of Tidemark by itself, from its plugins folder."""

from airflow.plugins_manager import AirflowPlugin

from tidemark_airflow import pool


class TidemarkPlugin(AirflowPlugin):
    name = "tidemark"
    listeners = [pool]  # noqa: RUF012 - Airflow's own form
