"""The hourly DAG through Airflow's own scheduler, command line and connections."""

import json
import re
import subprocess
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import NoReturn

from tests.commands import airflow_command, tidemark
from tests.pipeline import TASK
from tests.services import KafkaTopic, Sent, connections_of, read_json, visible_lines, walk
from tests.statsd import StatsdServer
from tests.waiting import wait_until

from tidemark.config import Stream, load_stream
from tidemark.demo.airflow import AirflowClient, TaskView, backfill_command
from tidemark.drive.consume import consume_interval
from tidemark.drive.publish import publish_stream
from tidemark.drive.services import now_ms
from tidemark.environment import variable_of
from tidemark.ledger.lease import LeaseTaken
from tidemark.metrics import METRICS, STAGE_SECONDS, Stage
from tidemark.names import HOUR_MS, Hour, Interval, isoformat
from tidemark.stack import Stack
from tidemark.storage import open_storage


def last_hours(count: int) -> list[Hour]:
    """The last full hours whose grace is over, so that no run waits for the clock."""
    now = Hour.of(now_ms() - 61_000)
    return [Hour(now.start_ms - back * HOUR_MS) for back in range(count, 0, -1)]


def all_succeeded(
    airflow: AirflowClient, dag: str, hours: list[Hour], attempt: int = 1, tasks: Collection[str] = ()
) -> bool:
    """Whether the tasks, all if none is named, of these hours' runs have succeeded."""
    found = [task for task in airflow.tasks(dag) if task.hour in hours and (not tasks or task.task in tasks)]
    for task in found:
        assert task.state not in ("failed", "upstream_failed"), airflow.log_tail(task)
    # The day is waited for after its last hour only. What was announced is not announced again: by another run it is
    # skipped, by a rerun removed, since there is one less to map.
    found = [task for task in found if task.state not in ("skipped", "removed") and not is_of_a_whole_day(task)]
    done = [task for task in found if task.state == "success" and task.attempt >= attempt]
    return {task.hour for task in found} == set(hours) and done == found


def is_of_a_whole_day(task: TaskView) -> bool:
    """No test here fills 24 hours, so that this one waits on."""
    return task.task == "day" and task.hour.hh == "23"


def client_of(stack: Stack) -> AirflowClient:
    login = stack.login()
    return AirflowClient(login.address, login.user, login.password, stack.environment())


def airflow_cli(stack: Stack, *arguments: str) -> str:
    return airflow_command(*arguments, environment=stack.environment())


def events_of(airflow: AirflowClient, asset: str, keys: list[str]) -> list[tuple[str, int]]:
    """Key and revision of every event for one of the keys. An event without a key is wrong always."""
    (found,) = [row for row in airflow.rows("/api/v2/assets", "assets") if row["uri"] == f"tidemark://{asset}"]
    wait_until(lambda: can_list_events(airflow), "no run that an event started is queued")
    rows = list(airflow.rows("/api/v2/assets/events", "asset_events", asset_id=found["id"]))
    assert [row for row in rows if row["partition_key"] is None] == []
    return sorted((row["partition_key"], row["extra"]["revision"]) for row in rows if row["partition_key"] in keys)


def can_list_events(airflow: AirflowClient) -> bool:
    """Airflow 3.3.2 cannot while a run that one of them started is queued."""
    return airflow._request("GET", "/api/v2/assets/events").ok


def runs_of(airflow: AirflowClient, dag: str, keys: list[str]) -> list[tuple[str, str]]:
    rows = airflow.rows(f"/api/v2/dags/{dag}/dagRuns", "dag_runs")
    return sorted((row["partition_key"], row["state"]) for row in rows if row["partition_key"] in keys)


def has_ended(airflow: AirflowClient, dag: str, run: str) -> bool:
    """A run that failed is a failure of the test."""
    state = airflow.get(f"/api/v2/dags/{dag}/dagRuns/{run}")["state"]
    assert state != "failed", run
    return bool(state == "success")


def test_flags_are_events_that_start_consumers_once_for_each_revision_and_a_replay_makes_up_for_a_pause(
    airflow_stack: Stack, streams_file: Path, statsd: StatsdServer
) -> None:
    topic = KafkaTopic(airflow_stack, "clicks", 4)
    # The last one has a run of its own as soon as its DAG is not paused.
    older, first, second, _ = last_hours(4)
    hours = [first, second]
    topic.send(
        Sent(partition=n % 4, time_ms=hour.start_ms, value=f"{isoformat(hour.start_ms + n)} line {n}".encode())
        for hour in hours
        for n in range(200)
    )
    airflow = client_of(airflow_stack)
    dags = ("example_count_lines", "ready_clicks", "ingest_clicks")
    airflow.wait_for_dags((*dags, "example_hourly"))
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

    keys = [str(hour) for hour in hours]
    assert events_of(airflow, "clicks/hour", keys) == [(key, 1) for key in keys]
    replays = [
        tidemark("flags", "replay", "example_hourly", "--yes", environment=airflow_stack.environment())
        for _ in range(2)
    ]
    assert [done.returncode for done in replays] == [0, 0], replays
    assert all(f"example_hourly missed {key}." in replays[0].stdout for key in keys), replays
    assert not any(key in replays[1].stdout for key in keys), replays
    airflow.unpause("example_hourly")
    counted = [(key, "success") for key in keys]
    wait_until(lambda: runs_of(airflow, "example_hourly", keys) == counted, "example_hourly has caught up")
    assert events_of(airflow, "clicks/hour", keys) == [(key, 1) for key in keys]

    late = f"{isoformat(first.start_ms + 7)} late".encode()
    topic.send([Sent(partition=0, time_ms=first.start_ms, value=late)])
    airflow_cli(airflow_stack, "dags", "trigger", "ingest_clicks", "--run-id", "by_hand", "--conf", named(older))
    wait_until(partial(has_ended, airflow, "ingest_clicks", "by_hand"), f"{older} is run by hand")
    keys = [str(older), str(first), str(second)]
    told = [(str(older), 1), (str(first), 1), (str(first), 2), (str(second), 1)]
    counted = [(key, "success") for key, _ in told]
    wait_until(lambda: runs_of(airflow, "example_hourly", keys) == counted, "example_hourly has counted each revision")
    assert events_of(airflow, "clicks/hour", keys) == told
    assert_metrics_arrived(statsd, "clicks", records=401, revisions=1)


def assert_metrics_arrived(statsd: StatsdServer, stream: str, **totals: int) -> None:
    """Every one that is documented, of every stage, and the counters add up to what was done."""

    def totals_now() -> dict[str, float]:
        return {name: statsd.total(f"airflow.tidemark.{name}.{stream}") for name in totals}

    wait_until(lambda: totals_now() == totals, "the counters have arrived")
    found = [row for row in statsd.received("tidemark") if f".{stream}" in row.name]
    wanted = {f"{metric.name}.{stream}": metric.kind for metric in METRICS if metric is not STAGE_SECONDS}
    wanted |= {f"{STAGE_SECONDS.name}.{stream}.{stage}": STAGE_SECONDS.kind for stage in Stage}
    assert {row.name.removeprefix("airflow.tidemark."): row.kind for row in found} == wanted
    assert [row.value for row in found if row.name == f"airflow.tidemark.lag_records.{stream}"][-1] == 0


def named(hour: Hour) -> str:
    return json.dumps({"hour": str(hour)})


def attempted(outlook: str) -> list[str]:
    """The hours, in order, that a dry run would run; above them it repeats what was asked for."""
    table = outlook.partition("Runs to be attempted:")[2]
    return re.findall(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}", table.replace(" ", "T"))


def test_each_flag_is_one_event_in_whatever_way_and_however_often_its_hour_is_run(
    airflow_stack: Stack, streams_file: Path
) -> None:
    """Its topic is empty, so that its hours take no Spark job."""
    KafkaTopic(airflow_stack, "payments", 2)
    unheard, first, second, _ = last_hours(4)
    airflow = client_of(airflow_stack)
    dag = "ingest_payments"
    airflow.wait_for_dags((dag,))
    outlook = airflow_cli(airflow_stack, *backfill_command(dag, [first, second])[1:], "--run-backwards", "--dry-run")
    assert attempted(outlook) == [str(second), str(first)]
    assert airflow.tasks(dag) == []
    airflow.backfill(dag, [first, second], "--run-backwards")
    airflow.unpause(dag)
    wait_until(partial(all_succeeded, airflow, dag, [first, second]), f"{first} and {second} are done")
    keys = [str(unheard), str(first), str(second)]
    assert events_of(airflow, "payments/hour", keys) == [(key, 1) for key in keys[1:]]

    # A flag whose publish task died before its event, while no other run publishes.
    wait_until(lambda: not has_running(airflow, dag), "every run has ended")
    pause(airflow, dag)
    stream, interval = load_stream(streams_file, "payments"), Interval(unheard.start_ms, unheard.end_ms)
    wait_until(lambda: consumed(airflow_stack, stream, interval), f"{unheard} is consumed")
    flags = publish_stream(stream, connections_of(airflow_stack), TASK).published
    assert [flag.subject for flag in flags] == [str(unheard)]
    airflow.unpause(dag)
    airflow_cli(airflow_stack, "dags", "trigger", dag, "--run-id", "by_hand", "--conf", named(first))
    wait_until(partial(has_ended, airflow, dag, "by_hand"), f"{first} is run by hand once more")
    assert events_of(airflow, "payments/hour", keys) == [(key, 1) for key in keys]
    board = airflow.get(f"/readiness/api/streams/payments/hours/{first}")
    assert {"plan", "consume", "archive", "publish"} <= {row["task"] for row in board["runs"][0]["tasks"]}

    dates = ("-s", isoformat(first.start_ms), "-e", isoformat(second.start_ms))
    airflow_cli(airflow_stack, "tasks", "clear", dag, "-t", "publish", "-d", "-y", *dates)
    is_again = partial(all_succeeded, airflow, dag, [first, second], tasks=("publish",), attempt=2)
    wait_until(is_again, f"{first} and {second} are published once more")
    wait_until(lambda: not has_running(airflow, dag), "every run has ended")
    assert events_of(airflow, "payments/hour", keys) == [(key, 1) for key in keys]

    airflow_cli(airflow_stack, "dags", "trigger", dag, "--run-id", "without_hour")
    run = f"/api/v2/dags/{dag}/dagRuns/without_hour"
    wait_until(lambda: airflow.get(run)["state"] == "failed", "a run by hand that names no hour fails")
    tasks = {row["task_id"]: row for row in airflow.get(f"{run}/taskInstances")["task_instances"]}
    assert (tasks["plan"]["state"], tasks["plan"]["try_number"]) == ("failed", 1)


def test_why_knows_of_a_dag_that_is_paused_a_run_that_never_was_and_a_task_that_fails(
    airflow_stack: Stack, streams_file: Path
) -> None:
    """The topic of this stream does not exist."""
    airflow, dag = client_of(airflow_stack), "ingest_idle"
    (hour,) = last_hours(1)
    environment = {**airflow_stack.environment(), "TIDEMARK_STREAMS": str(streams_file)}

    def why() -> str:
        done = tidemark("why", "idle", str(hour), environment=environment)
        assert done.returncode == 1, done.stderr
        return done.stdout

    airflow.wait_for_dags((dag,))
    told = why()
    assert "nothing was ever planned for the stream" in told
    assert f"the DAG {dag} is paused" in told
    assert f"Airflow never scheduled a run of {dag} for this hour" in told
    airflow.backfill(dag, [hour])
    airflow.unpause(dag)
    wait_until(lambda: "its task plan is up_for_retry, try 1" in why(), "the first try has failed")
    told = why()
    assert "is running" in told
    assert "is paused" not in told
    pause(airflow, dag)
    run = next(task.run for task in airflow.tasks(dag) if task.hour == hour)
    airflow._request("PATCH", f"/api/v2/dags/{dag}/dagRuns/{run}", json={"state": "failed"}).raise_for_status()
    assert f"the run {run} is failed" in why()


def consumed(stack: Stack, stream: Stream, interval: Interval) -> bool:
    """Without Spark; another run of the stream may hold it meanwhile."""
    try:
        consume_interval(stream, interval, connections_of(stack), TASK, no_spark)
    except LeaseTaken:
        return False
    return True


def no_spark() -> NoReturn:
    raise AssertionError("the topic is empty")


def pause(airflow: AirflowClient, dag: str) -> None:
    airflow._request("PATCH", f"/api/v2/dags/{dag}", json={"is_paused": True}).raise_for_status()


def has_running(airflow: AirflowClient, dag: str) -> bool:
    rows = airflow.rows(f"/api/v2/dags/{dag}/dagRuns", "dag_runs")
    return any(row["state"] in ("queued", "running") for row in rows)


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
    airflow = client_of(airflow_stack)
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
    airflow = client_of(airflow_stack)
    path = "/api/v2/pools/tidemark_spark"

    def slots_after_a_restart() -> int:
        # The triggerer is the quickest of those that make it.
        airflow_stack.stop("triggerer")
        airflow_stack.start("triggerer")
        return int(airflow.get(path)["slots"])

    assert airflow.get(path)["slots"] == 4
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
        ["airflow", "dags", "test", "ingest_spread", isoformat(hour.end_ms), "--conf", named(hour)],
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
