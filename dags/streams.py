"""Two hourly DAGs for each stream of include/config/streams.yaml.

`ingest_<stream>` does the work: plan >> consume >> archive >> publish >> announce. `ready_<stream>` only waits, without
a slot: its grid in the UI shows which hours and days are ready.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, get_parsing_context

from tidemark.config import Stream, load_streams
from tidemark.environment import streams_file
from tidemark_airflow.assets import assets_of
from tidemark_airflow.operators import (
    AnnounceOperator,
    ArchiveOperator,
    ConsumeOperator,
    PlanOperator,
    PublishOperator,
)
from tidemark_airflow.sensors import DayReadySensor, HourOnTimeSensor, HourReadySensor
from tidemark_airflow.tasks import HOUR, hour_param


def hourly(dag_id: str, stream: Stream, description: str, max_active_runs: int) -> DAG:
    default_args: dict[str, Any] = {
        "owner": stream.owner,
        "retries": 3,
        "retry_delay": timedelta(seconds=20),
        "execution_timeout": timedelta(hours=1),
    }
    return DAG(
        dag_id=dag_id,
        description=description,
        schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
        start_date=datetime(2020, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=max_active_runs,
        default_args=default_args,
        params={"hour": hour_param()},
        tags=["tidemark"],
    )


def build_ingest(dag_id: str, stream: Stream) -> DAG:
    with hourly(dag_id, stream, f"Kafka topic {stream.topic} to {stream.root}, hour by hour", 4) as dag:
        plan = PlanOperator(task_id="plan", stream=stream)
        # One at a time: a second job would only wait for the stream's lease.
        consume = ConsumeOperator(task_id="consume", stream=stream, max_active_tis_per_dag=1)
        archive = ArchiveOperator(task_id="archive", stream=stream, max_active_tis_per_dag=1)
        publish = PublishOperator(task_id="publish", stream=stream)
        announce = AnnounceOperator.partial(
            task_id="announce", stream=stream.name, outlets=assets_of(stream.name), max_active_tis_per_dag=1
        ).expand(flags=publish.output)
        plan >> consume >> archive >> publish >> announce
    return dag


def build_ready(dag_id: str, stream: Stream) -> DAG:
    with hourly(dag_id, stream, f"Which hours and days of {stream.name} are ready", 1000) as dag:
        hour = HourReadySensor(task_id="hour", stream=stream.name)
        day = DayReadySensor(task_id="day", stream=stream.name, last_hour=HOUR)
        hour >> day
        if stream.ready_within:
            HourOnTimeSensor(task_id="on_time", stream=stream.name, within=stream.ready_within)
    return dag


BUILDERS: dict[str, Callable[[str, Stream], DAG]] = {"ingest": build_ingest, "ready": build_ready}

for _stream in load_streams(streams_file()).streams.values():
    for _kind, _build in BUILDERS.items():
        _dag_id = f"{_kind}_{_stream.name}"
        if get_parsing_context().dag_id in (None, _dag_id):
            globals()[_dag_id] = _build(_dag_id, _stream)
