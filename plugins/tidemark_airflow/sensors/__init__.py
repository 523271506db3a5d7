"""Sensors on ready flags."""

from tidemark_airflow.sensors.ready import DayReadySensor, HourReadySensor

__all__ = ["DayReadySensor", "HourReadySensor"]
