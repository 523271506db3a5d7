"""The hourly DAG through Airflow's own scheduler, command line and connections."""

import subprocess
from functools import partial
from pathlib import Path

from tests.services import KafkaTopic, Sent, connections_of, read_json, visible_lines, walk
from tests.waiting import wait_until

from tidemark.config import load_stream
from tidemark.demo.airflow import AirflowClient, TaskView
from tidemark.drive.services import now_ms
from tidemark.environment import variable_of
from tidemark.names import HOUR_MS, Hour, isoformat
from tidemark.stack import Stack
from tidemark.storage import open_storage


def last_hours(count: int) -> list[Hour]:
    """The last full hours whose grace is over, so that no run waits for the clock."""
    now = Hour.of(now_ms() - 61_000)
    return [Hour(now.start_ms - back * HOUR_MS) for back in range(count, 0, -1)]


def all_succeeded(airflow: AirflowClient, dag: str, hours: list[Hour], attempt: int = 1) -> bool:
    tasks = [task for task in airflow.tasks(dag) if task.hour in hours]
    for task in tasks:
        assert task.state not in ("failed", "upstream_failed"), airflow.log_tail(task)
    # The day is waited for after its last hour only.
    tasks = [task for task in tasks if (task.task, task.state) != ("day", "skipped") and not is_of_a_whole_day(task)]
    done = [task for task in tasks if task.state == "success" and task.attempt >= attempt]
    return {task.hour for task in tasks} == set(hours) and done == tasks


def is_of_a_whole_day(task: TaskView) -> bool:
    """No test here fills 24 hours, so that this one waits on."""
    return task.task == "day" and task.hour.hh == "23"


def test_a_backfill_by_the_scheduler_ends_with_flags_and_wakes_the_dag_downstream(
    airflow_stack: Stack, streams_file: Path
) -> None:
    topic = KafkaTopic(airflow_stack, "clicks", 4)
    hours = last_hours(2)
    topic.send(
        Sent(partition=n % 4, time_ms=hour.start_ms, value=f"{isoformat(hour.start_ms + n)} line {n}".encode())
        for hour in hours
        for n in range(200)
    )
    login = airflow_stack.login()
    airflow = AirflowClient(login.address, login.user, login.password, airflow_stack.environment())
    dags = ("example_count_lines", "ready_clicks", "ingest_clicks")
    airflow.wait_for_dags(dags)
    for dag in dags:
        airflow.backfill(dag, hours)
    for dag in dags:
        airflow.unpause(dag)
    for dag in reversed(dags):
        wait_until(partial(all_succeeded, airflow, dag, hours), f"{dag} has done {hours[0]} to {hours[-1]}")

    storage = open_storage(load_stream(streams_file, "clicks").root, connections_of(airflow_stack))
    assert sorted(visible_lines(storage)) == sorted(
        (hour.start_ms + n, f"line {n}".encode()) for hour in hours for n in range(200)
    )
    for hour in hours:
        assert read_json(storage, f"{hour.day}/{hour.hh}/_READY")["counts"]["lines"] == 200
    consumed = [task for task in airflow.tasks("ingest_clicks") if task.task == "consume" and task.hour in hours]
    submitted = [airflow.log_tail(task, lines=10_000) for task in consumed]
    assert any("jobs/consume.py" in log and "--timeout-s" in log for log in submitted)


def test_a_backfill_takes_hours_older_than_the_stream_and_does_planned_ones_again_to_the_byte(
    airflow_stack: Stack, streams_file: Path
) -> None:
    topic = KafkaTopic(airflow_stack, "young", 2)
    oldest, older, first = hours = last_hours(3)
    sent = [
        Sent(partition=n % 2, time_ms=hour.start_ms + n * 60_000, value=f"line {n}".encode())
        for hour in hours
        for n in range(60)
    ]
    topic.send(sent)
    login = airflow_stack.login()
    airflow = AirflowClient(login.address, login.user, login.password, airflow_stack.environment())
    storage = open_storage(load_stream(streams_file, "young").root, connections_of(airflow_stack))
    airflow.wait_for_dags(("ingest_young",))
    airflow.backfill("ingest_young", [first])
    airflow.unpause("ingest_young")
    wait_until(partial(all_succeeded, airflow, "ingest_young", [first]), f"the stream starts with {first}")
    assert visible_lines(storage) == []
    files = {path: storage.read(path) for path, _ in walk(storage)}
    assert files

    wait_until(lambda: not airflow.open_backfills("ingest_young"), "Airflow allows the next backfill")
    airflow.backfill("ingest_young", hours, reprocess="completed")
    wait_until(partial(all_succeeded, airflow, "ingest_young", [oldest, older]), f"{oldest} and {older} are backfilled")
    wait_until(partial(all_succeeded, airflow, "ingest_young", [first], attempt=2), f"{first} is done again")
    assert sorted(visible_lines(storage)) == sorted((record.time_ms, record.value) for record in sent)
    for hour in hours:
        assert read_json(storage, f"{hour.day}/{hour.hh}/_READY")["counts"]["lines"] == 60
    assert {path: storage.read(path) for path in files} == files


def test_the_pool_of_the_spark_jobs_makes_itself_and_keeps_the_size_that_an_operator_gave_it(
    airflow_stack: Stack,
) -> None:
    login = airflow_stack.login()
    airflow = AirflowClient(login.address, login.user, login.password, airflow_stack.environment())
    path = "/api/v2/pools/tidemark_spark"

    def slots_after_a_restart() -> int:
        # The triggerer is the quickest of those that make it.
        airflow_stack.stop("triggerer")
        airflow_stack.start("triggerer")
        return int(airflow._get(path)["slots"])

    assert airflow._get(path)["slots"] == 4
    larger = {"pool": "tidemark_spark", "slots": 5, "description": "mine", "include_deferred": False}
    airflow._request("PATCH", path, json=larger).raise_for_status()
    assert slots_after_a_restart() == 5
    airflow._request("DELETE", path).raise_for_status()
    assert slots_after_a_restart() == 4


def test_the_same_dag_runs_on_a_spark_cluster_by_changing_the_connection_alone(
    airflow_stack: Stack, spark_cluster: Stack, streams_file: Path
) -> None:
    topic = KafkaTopic(airflow_stack, "spread", 4)
    (hour,) = last_hours(1)
    topic.send(Sent(partition=n % 4, time_ms=hour.start_ms + n, value=f"line {n}".encode()) for n in range(400))
    connection = variable_of("spark_default")
    environment = {**airflow_stack.environment(), connection: spark_cluster.environment()[connection]}
    assert "spark://" in environment[connection]
    done = subprocess.run(
        ["airflow", "dags", "test", "ingest_spread", isoformat(hour.end_ms)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    storage = open_storage(load_stream(streams_file, "spread").root, connections_of(airflow_stack))
    assert sorted(visible_lines(storage)) == sorted((hour.start_ms + n, f"line {n}".encode()) for n in range(400))
    executors = list(spark_cluster.home.glob("spark/spark-worker-*/app-*/*/stderr"))
    assert {path.parts[-4] for path in executors} == {"spark-worker-1", "spark-worker-2"}
