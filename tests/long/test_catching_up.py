"""What passes while nobody runs, and runs again that an operator asks for, through Airflow's scheduler and commands."""

from functools import partial
from pathlib import Path

import pytest
from tests.armed import write_streams
from tests.commands import tidemark
from tests.integration.test_airflow import (
    airflow_cli,
    all_succeeded,
    attempted,
    client_of,
    events_of,
    last_hours,
    named,
    no_spark,
    runs_of,
)
from tests.integration.test_sensors import connections_at
from tests.pipeline import TASK, at, interval_of
from tests.services import KafkaTopic, Sent, connections_of, read_json, walk
from tests.waiting import wait_until

from tidemark.config import Stream, load_stream
from tidemark.demo.airflow import AirflowClient, backfill_command
from tidemark.drive.consume import consume_interval
from tidemark.drive.publish import publish_stream
from tidemark.ledger.zookeeper import open_session
from tidemark.names import HOUR_MS, Hour, Interval, isoformat
from tidemark.stack import Stack
from tidemark.storage import Storage, open_storage

STREAMS = ("clicks", "payments", "waited")
LINES = 30
MANY = 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("catching-up")
    write_streams(folder, STREAMS, "offset_reset: earliest")
    return folder


@pytest.fixture
def airflow(own_stack: Stack) -> AirflowClient:
    airflow = client_of(own_stack)
    airflow.wait_for_dags((*(f"ingest_{name}" for name in STREAMS), "ready_waited", "example_hourly"))
    return airflow


def storage_of(stream: Stream, stack: Stack) -> Storage:
    return open_storage(stream.root, connections_of(stack))


def lines_of_flag(storage: Storage, hour: Hour) -> int:
    lines: int = read_json(storage, f"{hour.day}/{hour.hh}/_READY")["counts"]["lines"]
    return lines


def lines(hour: Hour) -> list[Sent]:
    return [Sent(partition=n % 2, time_ms=hour.start_ms + n, value=f"{hour} {n}".encode()) for n in range(LINES)]


def test_hours_that_passed_without_a_scheduler_get_flags_and_events_by_one_run_and_a_held_one_holds_no_other(
    own_stack: Stack, folder: Path, airflow: AirflowClient
) -> None:
    stream, dag = load_stream(folder / "streams.yaml", "clicks"), "ingest_clicks"
    before, held, found, *missed = last_hours(6)
    topic, connections = KafkaTopic(own_stack, "clicks", 2), connections_of(own_stack)
    consume_interval(stream, interval_of(before), connections, TASK, no_spark)
    topic.send(lines(held))
    for partition in range(2):
        topic.expire_before(partition, LINES // 2)
    # The hour in which a loss is found is held, too.
    with at(found.start_ms + HOUR_MS // 2):
        consume_interval(stream, interval_of(held), connections, TASK, no_spark)
    own_stack.stop("scheduler")
    topic.send(line for hour in (found, *missed) for line in lines(hour))
    for name in (dag, "example_hourly"):
        airflow.unpause(name)
    own_stack.start("scheduler")

    told = [str(hour) for hour in (before, *missed)]
    keys = sorted([*told, str(held), str(found)])
    ran = [(key, "success") for key in told]
    wait_until(lambda: runs_of(airflow, "example_hourly", keys) == ran, "the consumer ran once for each")
    caught_up = min(task.hour for task in airflow.tasks(dag))
    assert caught_up >= missed[-1]
    assert events_of(airflow, "clicks/hour", keys) == [(key, 1) for key in told]
    storage = storage_of(stream, own_stack)
    assert [lines_of_flag(storage, hour) for hour in (before, *missed)] == [0, *(LINES for _ in missed)]

    environment = {**own_stack.environment(), "TIDEMARK_STREAMS": str(folder / "streams.yaml")}
    for hour in (held, found):
        why = tidemark("why", "clicks", str(hour), environment=environment)
        assert (why.returncode, why.stdout.count("are lost, and may have held lines of this hour")) == (1, 2)
        act = ("flags", "accept", "clicks", str(hour), "--reason", "lost", "--yes")
        accepted = tidemark(*act, environment=environment)
        assert accepted.returncode == 0, accepted.stderr
    wait_until(partial(all_succeeded, airflow, dag, [caught_up]), f"the run of {caught_up} has ended")
    dates = ("-s", isoformat(caught_up.start_ms), "-e", isoformat(caught_up.start_ms))
    airflow_cli(own_stack, "tasks", "clear", dag, "-t", "publish", "-d", "-y", *dates)
    ran = [(key, "success") for key in keys]
    wait_until(lambda: runs_of(airflow, "example_hourly", keys) == ran, "and for those that were accepted")
    assert events_of(airflow, "clicks/hour", keys) == [(key, 1) for key in keys]


def test_each_way_to_ask_for_an_hour_again_is_of_that_hour_and_leaves_what_is_there(
    own_stack: Stack, folder: Path, airflow: AirflowClient
) -> None:
    stream, dag = load_stream(folder / "streams.yaml", "payments"), "ingest_payments"
    storage = storage_of(stream, own_stack)
    # The last one has a run of its own as soon as its DAG is not paused.
    *hours, _ = last_hours(5)
    oldest, *planned = hours
    KafkaTopic(own_stack, "payments", 2).send(lines(planned[1]))

    def attempts() -> dict[Hour, int]:
        return {task.hour: task.attempt for task in airflow.tasks(dag) if task.task == "publish" and task.hour in hours}

    def committed() -> dict[str, bytes]:
        """Everything but the runs that come with time."""
        names = [interval_of(hour).shift for hour in hours]
        folders = [f"{hour.day}/{hour.hh}/" for hour in hours]
        paths = [path for path, _ in walk(storage) if not path.startswith("_tmp")]
        return {p: storage.read(p) for p in paths if any(name in p for name in (*names, *folders))}

    def backfill(asked: list[Hour], reprocess: str, wanted: dict[Hour, int]) -> None:
        wait_until(lambda: not airflow.open_backfills(dag), "Airflow allows the next backfill")
        airflow.backfill(dag, asked, "--run-backwards", reprocess=reprocess)
        wait_until(lambda: attempts() == wanted, f"--reprocess-behavior {reprocess} runs what it says")
        wait_until(partial(all_succeeded, airflow, dag, list(wanted)), "all of it has succeeded")

    outlook = airflow_cli(own_stack, *backfill_command(dag, planned)[1:], "--run-backwards", "--dry-run")
    assert attempted(outlook) == [str(hour) for hour in reversed(planned)]
    assert airflow.tasks(dag) == []
    airflow.backfill(dag, planned, "--run-backwards")
    airflow.unpause(dag)
    wait_until(partial(all_succeeded, airflow, dag, planned), "the hours are done, the last one first")
    assert [lines_of_flag(storage, hour) for hour in planned] == [0, LINES, 0]
    first = committed()
    assert {path.split("-", 1)[1] for path in first if path.startswith("_manifests") and path.endswith(".json")} == {
        f"{interval_of(hour).shift}.json" for hour in planned
    }

    once = dict.fromkeys(planned, 1)
    backfill(hours, "none", {oldest: 1, **once})
    before = committed()
    assert {path: before[path] for path in first} == first
    run = next(task.run for task in airflow.tasks(dag) if task.hour == planned[1])
    airflow._request("PATCH", f"/api/v2/dags/{dag}/dagRuns/{run}", json={"state": "failed"}).raise_for_status()
    backfill(hours, "failed", {oldest: 1, **once, planned[1]: 2})
    backfill(hours, "completed", {oldest: 2, **dict.fromkeys(planned, 2), planned[1]: 3})
    dates = ("-s", isoformat(planned[1].start_ms), "-e", isoformat(planned[1].start_ms))
    airflow_cli(own_stack, "tasks", "clear", dag, "-y", *dates)
    wait_until(lambda: attempts()[planned[1]] == 4, "the run that was cleared goes on")
    airflow_cli(own_stack, "dags", "trigger", dag, "--run-id", "by_hand", "--conf", named(planned[1]))
    state = f"/api/v2/dags/{dag}/dagRuns/by_hand"
    wait_until(lambda: airflow.get(state)["state"] == "success", f"{planned[1]} is run by hand")
    wait_until(partial(all_succeeded, airflow, dag, hours), "all of it has succeeded")

    assert committed() == before
    keys = [str(hour) for hour in hours]
    assert events_of(airflow, "payments/hour", keys) == [(key, 1) for key in keys]


def test_a_hundred_sensors_wait_without_a_slot_over_one_connection_through_restarts_until_their_flags_come(
    own_stack: Stack, folder: Path, airflow: AirflowClient
) -> None:
    stream, dag = load_stream(folder / "streams.yaml", "waited"), "ready_waited"
    hours = last_hours(MANY)
    KafkaTopic(own_stack, "waited", 1)
    with open_session(connections_of(own_stack)) as client:
        idle = connections_at(client)

    def deferred() -> int:
        return int(airflow.get("/api/v2/pools/default_pool")["deferred_slots"])

    def connections() -> int:
        with open_session(connections_of(own_stack)) as client:
            return connections_at(client) - idle

    airflow.backfill(dag, hours)
    airflow.unpause(dag)
    wait_until(lambda: deferred() >= MANY, "all of them wait", within_s=1800)
    pool = airflow.get("/api/v2/pools/default_pool")
    assert (pool["running_slots"], pool["queued_slots"], pool["occupied_slots"]) == (0, 0, 0)
    wait_until(lambda: connections() == 1, "the triggerer has one connection for them all")
    own_stack.stop("triggerer")
    own_stack.start("triggerer")
    wait_until(lambda: connections() == 1, "the new triggerer has one connection")
    own_stack.kill("zookeeper")
    own_stack.start("zookeeper")
    wait_until(lambda: connections() == 1, "the triggerer is back at ZooKeeper")
    assert deferred() >= MANY

    whole = Interval(hours[0].start_ms, hours[-1].end_ms)
    consume_interval(stream, whole, connections_of(own_stack), TASK, no_spark)
    published = publish_stream(stream, connections_of(own_stack), TASK).published
    assert {str(hour) for hour in hours} <= {flag.subject for flag in published}
    # What waits on is the sensor of an hour that has begun since, or of a day.
    wait_until(lambda: deferred() < MANY // 10, "every sensor has seen its flag")
