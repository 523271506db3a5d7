"""A downstream DAG: waits for each hour's flag of clicks, then counts the lines of the files that the flag names."""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, CronDataIntervalTimetable

from tidemark.config import load_streams
from tidemark.environment import streams_file
from tidemark_airflow.operators import SparkJobOperator
from tidemark_airflow.sensors import HourReadySensor
from tidemark_airflow.tasks import HOUR, hour_param

STREAM = "clicks"

_stream = load_streams(streams_file()).streams.get(STREAM)
if _stream:
    with DAG(
        dag_id="example_count_lines",
        description=f"Counts the lines of each hour of {STREAM} when it is ready",
        schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
        start_date=datetime(2020, 1, 1, tzinfo=UTC),
        catchup=False,
        default_args={
            "owner": _stream.owner,
            "retries": 1,
            "retry_delay": timedelta(seconds=20),
            "execution_timeout": timedelta(hours=1),
        },
        params={"hour": hour_param()},
        tags=["tidemark", "example"],
    ):
        wait = HourReadySensor(task_id="wait", stream=STREAM)
        count = SparkJobOperator(
            task_id="count",
            stream=_stream,
            job="count_lines",
            arguments=("--subject", HOUR),
        )
        wait >> count
