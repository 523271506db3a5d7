"""What waits for the clock and what comes too late, through Airflow's scheduler and triggerer."""

import json
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.armed import set_stream, write_policy, write_streams
from tests.integration.test_airflow import all_succeeded, client_of, last_hours, no_spark
from tests.pipeline import TASK, interval_of
from tests.services import KafkaTopic, Sent, connections_of, read_json
from tests.waiting import wait_until

from tidemark.config import load_stream
from tidemark.demo.airflow import AirflowClient, TaskView
from tidemark.drive.consume import consume_interval
from tidemark.drive.publish import publish_stream
from tidemark.drive.services import now_ms
from tidemark.names import DAY_MS, HOUR_MS, Hour, Interval, duration_ms, moment
from tidemark.stack import Stack
from tidemark.storage import open_storage

STREAMS = ("patient", "late", "prompt")
WAIT_MS = 90_000
SOON, LATER = timedelta(minutes=1), timedelta(hours=2)
# What a site may have for failed tasks of every DAG.
ALERTING = """
import json

def alert(context):
    task = context["ti"]
    told = [task.dag_id, task.run_id, task.task_id, task.try_number, str(context["exception"])]
    with open({file!r}, "a") as file:
        file.write(json.dumps(told) + "\\n")

def task_policy(task):
    task.on_failure_callback = [alert]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("on-time")
    write_streams(folder, STREAMS)
    for name, within in (("late", SOON), ("prompt", LATER)):
        set_stream(folder, name, grace="20s", max_clock_skew="10s", ready_within=f"{within.seconds}s")
    write_policy(folder, ALERTING.format(file=str(folder / "alerts")))
    (folder / "alerts").touch()
    return folder


@pytest.fixture
def airflow(own_stack: Stack) -> AirflowClient:
    airflow = client_of(own_stack)
    airflow.wait_for_dags(("ingest_patient", "ready_late", "ready_prompt"))
    return airflow


def run_of(airflow: AirflowClient, dag: str, hour: Hour) -> dict[str, Any]:
    (run,) = (run for run in runs_of(airflow, dag) if Hour.parse(run["logical_date"][:13]) == hour)
    return run


def runs_of(airflow: AirflowClient, dag: str, **params: str) -> list[dict[str, Any]]:
    return list(airflow.rows(f"/api/v2/dags/{dag}/dagRuns", "dag_runs", **params))


def scheduled_hour(airflow: AirflowClient, dag: str) -> Hour:
    """The hour of the run that Airflow itself makes for a DAG that was paused before: the last full one."""
    wait_until(lambda: bool(runs_of(airflow, dag, run_type="scheduled")), f"a run of {dag} is scheduled")
    return min(Hour.parse(run["logical_date"][:13]) for run in runs_of(airflow, dag, run_type="scheduled"))


def task_of(airflow: AirflowClient, dag: str, hour: Hour, task: str) -> dict[str, Any]:
    """All that Airflow tells of it."""
    run = run_of(airflow, dag, hour)["dag_run_id"]
    found: dict[str, Any] = airflow.get(f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}")
    return found


def states(airflow: AirflowClient, dag: str, task: str, hours: list[Hour]) -> list[str]:
    return [str(task_of(airflow, dag, hour, task)["state"]) for hour in hours]


def publish(own_stack: Stack, folder: Path, name: str, interval: Interval) -> set[str]:
    """Without Airflow and Spark: consume what is empty, and flag it. The hours and days that have a flag now."""
    stream = load_stream(folder / "streams.yaml", name)
    due_ms = interval.end_ms + duration_ms(stream.grace)
    wait_until(lambda: now_ms() >= due_ms, "the grace is over")
    consume_interval(stream, interval, connections_of(own_stack), TASK, no_spark)
    return {flag.subject for flag in publish_stream(stream, connections_of(own_stack), TASK).published}


def alerts_of(folder: Path, dag: str) -> dict[str, tuple[str, int, str]]:
    """Task, try and text, by run. A second alert of a run is wrong always."""
    rows = [json.loads(line) for line in (folder / "alerts").read_text().splitlines()]
    mine = [row for row in rows if row[0] == dag]
    found = {run: (task, attempt, told) for _, run, task, attempt, told in mine}
    assert len(found) == len(mine), mine
    return found


def test_a_plan_before_its_time_waits_without_a_slot_and_takes_what_came_before_the_end_of_the_grace(
    own_stack: Stack, folder: Path, airflow: AirflowClient
) -> None:
    dag = "ingest_patient"
    (hour,) = last_hours(1)
    topic = KafkaTopic(own_stack, "patient", 1)
    airflow.backfill(dag, [hour])
    # Tasks read the file when they start, so that the time runs from here, however long all before it took.
    grace_s = (now_ms() + WAIT_MS - hour.end_ms) // 1000
    set_stream(folder, "patient", grace=f"{grace_s}s")
    airflow.unpause(dag)

    def plan() -> TaskView:
        (found,) = (task for task in airflow.tasks(dag) if task.hour == hour and task.task == "plan")
        assert found.state not in ("failed", "up_for_retry"), airflow.log_tail(found)
        return found

    def slots() -> tuple[int, int, int]:
        pool = airflow.get("/api/v2/pools/default_pool")
        return pool["running_slots"], pool["queued_slots"], pool["occupied_slots"]

    wait_until(lambda: plan().state == "deferred", "plan waits for the end of the grace")
    # Another test's task, or that of an hour that has just begun, may hold one.
    wait_until(lambda: slots() == (0, 0, 0), "no slot is taken")
    topic.send([Sent(partition=0, time_ms=hour.start_ms, value=b"before the end of the grace")])
    assert plan().state == "deferred"

    wait_until(partial(all_succeeded, airflow, dag, [hour]), "the run goes on by itself and succeeds")
    assert plan().attempt == 1
    stream = load_stream(folder / "streams.yaml", "patient")
    storage = open_storage(stream.root, connections_of(own_stack))
    manifest = read_json(storage, f"_manifests/00000001-{interval_of(hour).shift}.json")
    assert manifest["shift"]["planned_ms"] >= hour.end_ms + grace_s * 1000
    assert read_json(storage, f"{hour.day}/{hour.hh}/_READY")["counts"]["lines"] == 1
    assert alerts_of(folder, dag) == {}


def test_an_hour_without_a_flag_in_time_alerts_once_with_the_reasons_and_its_late_flag_still_ends_the_wait(
    own_stack: Stack, folder: Path, airflow: AirflowClient
) -> None:
    dag = "ready_late"
    # Of yesterday, and none that the task of its day would wait after.
    flagged = Hour.parse(f"{Hour.of(now_ms() - DAY_MS).day}T05")
    missed = Hour(flagged.end_ms)
    KafkaTopic(own_stack, "late", 1)
    assert publish(own_stack, folder, "late", interval_of(flagged)) == {str(flagged)}
    airflow.backfill(dag, [flagged, missed])
    # So that Airflow's own run is late before it begins, while the backfill's is late after a wait.
    wait_until(lambda: now_ms() % HOUR_MS >= duration_ms(SOON), "the last full hour is late")
    airflow.unpause(dag)
    last = scheduled_hour(airflow, dag)

    hours = [flagged, missed, last]
    ended = ["success", "failed", "failed"]
    wait_until(lambda: states(airflow, dag, "on_time", hours) == ended, "what has no flag in time is late")
    wait_until(lambda: states(airflow, dag, "hour", [missed, last]) == ["deferred"] * 2, "their hours are waited for")
    late = {hour: run_of(airflow, dag, hour) for hour in (missed, last)}
    # An old hour is not late because it is old.
    since = {missed: datetime.fromisoformat(late[missed]["start_date"]), last: moment(last.end_ms)}
    alerts = {run: alert for run, alert in alerts_of(folder, dag).items() if run in told_runs(late)}
    assert sorted(alerts) == sorted(told_runs(late))
    for hour, run in late.items():
        task, attempt, told = alerts[run["dag_run_id"]]
        assert (task, attempt) == ("on_time", 1)
        assert f"late/{hour}: not ready\n  - shard 0001-0" in told
        assert "the DAG ingest_late is paused" in told
        found = task_of(airflow, dag, hour, "on_time")
        assert found["try_number"] == 1
        assert datetime.fromisoformat(found["end_date"]) >= since[hour] + SOON
        view = TaskView(dag=dag, run=run["dag_run_id"], hour=hour, task="on_time", state="failed", attempt=1)
        assert told in airflow.log_tail(view, lines=10_000)

    assert {str(missed), str(last)} <= publish(own_stack, folder, "late", Interval(missed.start_ms, last.end_ms))
    seen = ["success"] * 3
    wait_until(lambda: states(airflow, dag, "hour", hours) == seen, "the late flags are seen")
    assert states(airflow, dag, "on_time", hours) == ended
    wait_until(lambda: run_of(airflow, dag, flagged)["state"] == "success", "the hour in time leaves a good run")
    wait_until(lambda: run_of(airflow, dag, missed)["state"] == "failed", "the miss stays on record")
    assert {run: alert for run, alert in alerts_of(folder, dag).items() if run in told_runs(late)} == alerts


def told_runs(runs: dict[Hour, dict[str, Any]]) -> list[str]:
    return [run["dag_run_id"] for run in runs.values()]


def test_an_hour_whose_flag_comes_in_time_alerts_nobody(own_stack: Stack, folder: Path, airflow: AirflowClient) -> None:
    dag = "ready_prompt"
    KafkaTopic(own_stack, "prompt", 1)
    airflow.unpause(dag)
    hour = scheduled_hour(airflow, dag)
    wait_until(lambda: states(airflow, dag, "on_time", [hour]) == ["deferred"], "it is not late yet")
    wait_until(lambda: states(airflow, dag, "hour", [hour]) == ["deferred"], "it is waited for")
    assert str(hour) in publish(own_stack, folder, "prompt", interval_of(hour))
    wait_until(partial(all_succeeded, airflow, dag, [hour]), "both see the flag")
    assert alerts_of(folder, dag) == {}
