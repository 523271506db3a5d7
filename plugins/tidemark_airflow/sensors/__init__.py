"""Sensors on ready flags."""

from tidemark_airflow.sensors.ready import HourReadySensor

__all__ = ["HourReadySensor"]
