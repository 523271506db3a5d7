"""A day of two streams by backfill through Airflow's scheduler, each step of publishing killed once on the way."""

from pathlib import Path

import pytest
from tests.armed import write_policy, write_streams
from tests.integration.test_airflow import client_of
from tests.services import KafkaTopic, Sent, connections_of, read_json
from tests.waiting import wait_until

from tidemark.config import load_stream
from tidemark.demo.airflow import AirflowClient
from tidemark.drive.services import now_ms
from tidemark.failpoints import FAILPOINTS, Failpoint
from tidemark.names import DAY_MS, Hour, hours_of_day
from tidemark.stack import Stack
from tidemark.storage import open_storage

STEPS = tuple(name for name in FAILPOINTS if name.startswith(("publish.", "announce.")))
STREAMS = ("clicks", "payments")
CONSUMERS = ("example_hourly", "example_daily", "example_join")
# By chance one task meets them all: more often than the DAG's own retries allow for.
MORE_RETRIES = f"def task_policy(task):\n    task.retries = {len(STEPS) + 1}\n"
LINES = 300
PATIENCE_S = 3600


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("day")
    write_streams(folder, STREAMS)
    write_policy(folder, MORE_RETRIES)
    return folder


@pytest.fixture(scope="module")
def steps() -> tuple[Failpoint, ...]:
    return STEPS


def test_a_day_of_two_streams_has_its_flags_each_event_once_and_consumers_that_ran_once_for_each(
    own_stack: Stack, folder: Path
) -> None:
    day = Hour.of(now_ms() - DAY_MS).day
    hours = list(hours_of_day(day))
    for name in STREAMS:
        # All but one hour are empty, and cost no Spark job.
        sent = [Sent(partition=n % 2, time_ms=hours[5].start_ms + n, value=b"line") for n in range(LINES)]
        KafkaTopic(own_stack, name, 2).send(sent)
    airflow = client_of(own_stack)
    ingest = [f"ingest_{name}" for name in STREAMS]
    airflow.wait_for_dags((*ingest, *CONSUMERS))
    for dag in ingest:
        airflow.backfill(dag, hours)
    for dag in (*CONSUMERS, *ingest):
        airflow.unpause(dag)

    wait_until(lambda: all(all_ran(airflow, dag, hours) for dag in ingest), "each hour is done", within_s=PATIENCE_S)
    hour_keys = [str(hour) for hour in hours]
    runs = {"example_hourly": hour_keys, "example_daily": [day], "example_join": hour_keys}
    wait_until(lambda: runs_of(airflow, day) == runs, "consumers ran for each key", within_s=PATIENCE_S)
    wanted = {f"{name}/{kind}": keys for name in STREAMS for kind, keys in (("hour", hour_keys), ("day", [day]))}
    wait_until(lambda: events_of(airflow, day) == wanted, "every flag has its event", within_s=PATIENCE_S)
    busy = hour_keys[5]
    assert f"counted lines={LINES} stream=clicks hour={busy}" in spark_log(airflow, "example_hourly", busy)
    assert f"counted lines={LINES} stream=clicks hour={day}" in spark_log(airflow, "example_daily", day)
    assert f"lines={LINES} other_lines={LINES} stream=clicks" in spark_log(airflow, "example_join", busy)

    assert sorted((folder / "witness").read_text().split()) == sorted(STEPS)
    for name in STREAMS:
        storage = open_storage(load_stream(folder / "streams.yaml", name).root, connections_of(own_stack))
        flags = {hour: read_json(storage, f"{hour.day}/{hour.hh}/_READY") for hour in hours}
        assert [flag["counts"]["lines"] for flag in flags.values()] == [0] * 5 + [LINES] + [0] * 18
        assert read_json(storage, f"{day}/_READY")["counts"]["lines"] == LINES
        assert not [status.path for hour in hours for status in storage.list(f"{day}/{hour.hh}") if ".2" in status.path]


def all_ran(airflow: AirflowClient, dag: str, hours: list[Hour]) -> bool:
    """Airflow tries a killed task again; a run that failed for all that is a failure of the test."""
    runs = list(airflow.rows(f"/api/v2/dags/{dag}/dagRuns", "dag_runs", run_type="backfill"))
    assert [run for run in runs if run["state"] == "failed"] == []
    done = [Hour.parse(run["logical_date"][:13]) for run in runs if run["state"] == "success"]
    return sorted(done) == hours


def events_of(airflow: AirflowClient, day: str) -> dict[str, list[str]]:
    """The keys of the day, sorted, one for each event; by asset."""
    found: dict[str, list[str]] = {}
    # Airflow 3.3.2 cannot list them while a run that one of them started is queued.
    if not airflow._request("GET", "/api/v2/assets/events", params={"limit": 1000}).ok:
        return found
    for asset in airflow.rows("/api/v2/assets", "assets"):
        rows = list(airflow.rows("/api/v2/assets/events", "asset_events", asset_id=asset["id"]))
        assert [row for row in rows if not row["partition_key"] or row["extra"] != {"revision": 1}] == []
        found[asset["name"]] = sorted(row["partition_key"] for row in rows if row["partition_key"].startswith(day))
    return found


def runs_of(airflow: AirflowClient, day: str) -> dict[str, list[str]]:
    """The keys of the day, sorted, one for each run that succeeded; by consumer."""
    found: dict[str, list[str]] = {}
    for dag in CONSUMERS:
        rows = [row for row in airflow.rows(f"/api/v2/dags/{dag}/dagRuns", "dag_runs") if row["partition_key"]]
        assert [row for row in rows if row["state"] == "failed"] == []
        done = [row["partition_key"] for row in rows if row["state"] == "success"]
        found[dag] = sorted(key for key in done if key.startswith(day))
    return found


def spark_log(airflow: AirflowClient, dag: str, key: str) -> str:
    """What the one task of the key's run wrote, with the lines of the job that it submitted."""
    (run,) = [row for row in airflow.rows(f"/api/v2/dags/{dag}/dagRuns", "dag_runs") if row["partition_key"] == key]
    path = f"/api/v2/dags/{dag}/dagRuns/{run['dag_run_id']}/taskInstances"
    (task,) = airflow.get(path)["task_instances"]
    return str(airflow.get(f"{path}/{task['task_id']}/logs/{task['try_number']}", full_content="true"))
