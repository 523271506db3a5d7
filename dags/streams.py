"""One hourly DAG for each stream of include/config/streams.yaml: plan >> consume >> archive >> publish."""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, CronDataIntervalTimetable, get_parsing_context

from tidemark.config import Stream, load_streams
from tidemark.environment import streams_file
from tidemark_airflow.operators import ArchiveOperator, ConsumeOperator, PlanOperator, PublishOperator


def build(stream: Stream) -> DAG:
    with DAG(
        dag_id=f"ingest_{stream.name}",
        description=f"Kafka topic {stream.topic} to {stream.root}, hour by hour",
        schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
        start_date=datetime(2020, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=4,
        default_args={
            "owner": stream.owner,
            "retries": 3,
            "retry_delay": timedelta(seconds=20),
            "execution_timeout": timedelta(hours=1),
        },
        tags=["tidemark"],
    ) as dag:
        plan = PlanOperator(task_id="plan", stream=stream)
        # One at a time: a second job would only wait for the stream's lease.
        consume = ConsumeOperator(task_id="consume", stream=stream, max_active_tis_per_dag=1)
        archive = ArchiveOperator(task_id="archive", stream=stream, max_active_tis_per_dag=1)
        publish = PublishOperator(task_id="publish", stream=stream)
        plan >> consume >> archive >> publish
    return dag


for _stream in load_streams(streams_file()).streams.values():
    _wanted = get_parsing_context().dag_id
    if _wanted in (None, f"ingest_{_stream.name}"):
        globals()[f"ingest_{_stream.name}"] = build(_stream)
