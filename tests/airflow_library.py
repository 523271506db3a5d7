"""Airflow's classes for tests in this process: imported so that Airflow makes no home and leaves logging alone."""

import os
from tempfile import TemporaryDirectory
from unittest.mock import patch

with (
    TemporaryDirectory(prefix="tidemark-airflow-") as _home,
    patch.dict(os.environ, {"_AIRFLOW__AS_LIBRARY": "1", "AIRFLOW_HOME": _home}),
):
    from airflow.sdk import Context
    from airflow.sdk.exceptions import AirflowSensorTimeout, TaskDeferred

    from tidemark_airflow.sensors import DayReadySensor, HourOnTimeSensor, HourReadySensor
    from tidemark_airflow.triggers import ready, session
    from tidemark_airflow.triggers.ready import ReadyTrigger

__all__ = [
    "AirflowSensorTimeout",
    "Context",
    "DayReadySensor",
    "HourOnTimeSensor",
    "HourReadySensor",
    "ReadyTrigger",
    "TaskDeferred",
    "ready",
    "session",
]
