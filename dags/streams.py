"""The DAGs of each stream of include/config/streams.yaml.

`ingest_<stream>` does the work: plan >> consume >> archive >> publish >> announce, every hour or as the stream asks,
and `complete` fails a run that could not publish all that is ready.
`ready_<stream>` only waits, without a slot: its grid in the UI shows which hours and days are ready. `retain_<stream>`
removes old days of a stream that has a `retain`.
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
    CompleteOperator,
    ConsumeOperator,
    ListOldDaysOperator,
    PlanOperator,
    PublishOperator,
    RemoveOldDaysOperator,
)
from tidemark_airflow.sensors import DayReadySensor, HourOnTimeSensor, HourReadySensor
from tidemark_airflow.tasks import HOUR, MINUTES_OF_AN_HOUR, hour_param

HOURLY, DAILY = "0 * * * *", "30 4 * * *"


def dag_of(dag_id: str, stream: Stream, description: str, max_active_runs: int, cron: str) -> DAG:
    default_args: dict[str, Any] = {
        "owner": stream.owner,
        "retries": 3,
        "retry_delay": timedelta(seconds=20),
        "execution_timeout": timedelta(hours=1),
    }
    return DAG(
        dag_id=dag_id,
        description=description,
        schedule=CronDataIntervalTimetable(cron, timezone="UTC"),
        start_date=datetime(2020, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=max_active_runs,
        default_args=default_args,
        params={"hour": hour_param()},
        tags=["tidemark"],
    )


def build_ingest(dag_id: str, stream: Stream) -> DAG:
    cron = HOURLY if stream.minutes == MINUTES_OF_AN_HOUR else f"*/{stream.minutes} * * * *"
    with dag_of(dag_id, stream, f"Kafka topic {stream.topic} to {stream.root}, hour by hour", 4, cron) as dag:
        plan = PlanOperator(task_id="plan", stream=stream)
        # One at a time: a second job would only wait for the stream's lease.
        consume = ConsumeOperator(task_id="consume", stream=stream, max_active_tis_per_dag=1)
        archive = ArchiveOperator(task_id="archive", stream=stream, max_active_tis_per_dag=1)
        publish = PublishOperator(task_id="publish", stream=stream)
        announce = AnnounceOperator.partial(
            task_id="announce", stream=stream.name, outlets=assets_of(stream.name), max_active_tis_per_dag=1
        ).expand(flags=publish.output)
        complete = CompleteOperator(task_id="complete", published_by="publish")
        plan >> consume >> archive >> publish >> [announce, complete]
    return dag


def build_ready(dag_id: str, stream: Stream) -> DAG:
    with dag_of(dag_id, stream, f"Which hours and days of {stream.name} are ready", 1000, HOURLY) as dag:
        hour = HourReadySensor(task_id="hour", stream=stream.name)
        day = DayReadySensor(task_id="day", stream=stream.name, last_hour=HOUR)
        hour >> day
        if stream.ready_within:
            HourOnTimeSensor(task_id="on_time", stream=stream.name, within=stream.ready_within)
    return dag


def build_retain(dag_id: str, stream: Stream) -> DAG:
    with dag_of(dag_id, stream, f"Removes days of {stream.name} that are older than {stream.retain}", 2, DAILY) as dag:
        days = ListOldDaysOperator(task_id="list", stream=stream)
        remove = RemoveOldDaysOperator(task_id="remove", stream=stream, listed_by="list")
        days >> remove
    return dag


BUILDERS: dict[str, Callable[[str, Stream], DAG]] = {
    "ingest": build_ingest,
    "ready": build_ready,
    "retain": build_retain,
}

for _stream in load_streams(streams_file()).streams.values():
    for _kind, _build in BUILDERS.items():
        _dag_id = f"{_kind}_{_stream.name}"
        if _kind == "retain" and _stream.retain is None:
            continue
        if get_parsing_context().dag_id in (None, _dag_id):
            globals()[_dag_id] = _build(_dag_id, _stream)
