"""Sensors on ready flags."""

from tidemark_airflow.sensors.ready import DayReadySensor, HourOnTimeSensor, HourReadySensor

__all__ = ["DayReadySensor", "HourOnTimeSensor", "HourReadySensor"]
