"""Downstream DAGs that wait for nothing: Airflow starts them with the events that Tidemark sends for its flags.

`example_hourly` for each hour of clicks, `example_daily` for each day, `example_join` for each hour that is ready in
clicks and in payments. The run's partition key is the hour or day.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from tidemark.config import Stream, load_streams
from tidemark.environment import streams_file
from tidemark_airflow.assets import KEY, every_day_of, every_hour_of
from tidemark_airflow.operators import SparkJobOperator

STREAM = "clicks"
OTHER = "payments"


def downstream(dag_id: str, stream: Stream, **settings: Any) -> DAG:
    return DAG(
        dag_id=dag_id,
        catchup=False,
        default_args={
            "owner": stream.owner,
            "retries": 1,
            "retry_delay": timedelta(seconds=20),
            "execution_timeout": timedelta(hours=1),
        },
        tags=["tidemark", "example"],
        **settings,
    )


_streams = load_streams(streams_file()).streams
if STREAM in _streams:
    _stream = _streams[STREAM]
    with downstream(
        "example_hourly",
        _stream,
        description=f"Counts the lines of each hour of {STREAM}, started by its flag",
        schedule=every_hour_of(STREAM),
    ):
        SparkJobOperator(task_id="count", stream=_stream, job="count_lines", arguments=("--subject", KEY))
    with downstream(
        "example_daily",
        _stream,
        description=f"Counts the lines of each day of {STREAM}, started by its flag",
        schedule=every_day_of(STREAM),
    ):
        SparkJobOperator(task_id="count", stream=_stream, job="count_lines", arguments=("--subject", KEY))
    if OTHER in _streams:
        with downstream(
            "example_join",
            _stream,
            description=f"Lays {STREAM} and {OTHER} side by side, hour by hour, when both are ready",
            schedule=every_hour_of(STREAM, OTHER),
        ):
            SparkJobOperator(
                task_id="join", stream=_stream, job="join_hours", arguments=("--other", OTHER, "--hour", KEY)
            )
