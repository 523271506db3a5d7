"""A stream that was down for two days catches up in bites, through Airflow, and keeps no other stream waiting."""

from pathlib import Path

import pytest
from tests.integration.test_airflow import client_of
from tests.pipeline import expected_lines
from tests.services import KafkaTopic, Sent, connections_of, read_json, visible_lines, walk
from tests.waiting import wait_until

from tidemark.config import Stream, load_stream
from tidemark.demo.airflow import AirflowClient, TaskView
from tidemark.drive.consume import consume_interval
from tidemark.drive.services import now_ms, services
from tidemark.names import HOUR_MS, Hour, Interval, Task
from tidemark.stack import Stack
from tidemark.storage import open_storage

BEHIND, PROMPT = "ingest_behind", "ingest_prompt"
HOURS, LINES, BITE = 48, 25, 400
POOL = "/api/v2/pools/tidemark_spark"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("catch-up")
    settings = "cluster: main, owner: tests, grace: 60s, max_clock_skew: 30s"
    (folder / "streams.yaml").write_text(
        "streams:\n"
        f"  behind: {{topic: behind, root: 'hdfs:///airflow/behind', max_records: {BITE}, {settings}}}\n"
        f"  prompt: {{topic: prompt, root: 'hdfs:///airflow/prompt', {settings}}}\n"
    )
    return folder


def lines(topic: KafkaTopic, hours: list[Hour]) -> None:
    topic.send(
        Sent(partition=n % 2, time_ms=hour.start_ms + n * 1000, value=f"{hour} {n}".encode())
        for hour in hours
        for n in range(LINES)
    )


def begin_two_days_ago(stack: Stack, stream: Stream, hour: Hour) -> None:
    interval = Interval(hour.start_ms, hour.end_ms)
    consume_interval(stream, interval, connections_of(stack), Task(name="long ago", attempt=1), pytest.fail)


def tasks_of(airflow: AirflowClient, dag: str, hours: list[Hour]) -> list[TaskView]:
    found = [task for task in airflow.tasks(dag) if task.hour in hours]
    for task in found:
        assert task.state not in ("failed", "upstream_failed"), airflow.log_tail(task)
    return found


def have_succeeded(airflow: AirflowClient, dag: str, hours: list[Hour]) -> bool:
    found = [task for task in tasks_of(airflow, dag, hours) if task.state != "skipped"]
    return {task.hour for task in found} == set(hours) and all(task.state == "success" for task in found)


def consumes(airflow: AirflowClient, hours: list[Hour]) -> list[str]:
    return sorted(task.state for task in tasks_of(airflow, BEHIND, hours) if task.task == "consume")


def test_a_stream_that_was_down_for_two_days_catches_up_in_bites_and_starves_nobody(
    own_stack: Stack, folder: Path
) -> None:
    connections = connections_of(own_stack)
    behind, prompt = (load_stream(folder / "streams.yaml", name) for name in ("behind", "prompt"))
    topic, prompt_topic = (KafkaTopic(own_stack, stream.topic, 2) for stream in (behind, prompt))
    now = Hour.of(now_ms() - 61_000)
    hours = [Hour(now.start_ms - back * HOUR_MS) for back in range(HOURS, 0, -1)]
    begin_two_days_ago(own_stack, behind, hours[0])
    lines(topic, hours[1:])
    lines(prompt_topic, hours[-1:])

    airflow = client_of(own_stack)
    airflow.wait_for_dags((BEHIND, PROMPT))
    narrow = {"pool": "tidemark_spark", "slots": 2, "description": "narrow", "include_deferred": False}
    airflow._request("PATCH", POOL, json=narrow).raise_for_status()
    # Stands for the hours that a real backlog takes: as long as this holds the lease, its runs do not end.
    with services(behind, connections, Task(name="slow", attempt=1)) as slow, slow.lease().take(wait_s=60):
        airflow.backfill(BEHIND, hours[-4:])
        airflow.unpause(BEHIND)
        wait_until(lambda: "running" in consumes(airflow, hours[-4:]), "the stream that is behind has its slot")
        airflow.backfill(PROMPT, hours[-1:])
        airflow.unpause(PROMPT)
        wait_until(lambda: have_succeeded(airflow, PROMPT, hours[-1:]), "the other stream is not kept waiting")
        assert consumes(airflow, hours[-4:]).count("running") == 1
        assert "success" not in consumes(airflow, hours[-4:])
    storage = open_storage(prompt.root, connections)
    assert sorted(visible_lines(storage)) == expected_lines(prompt_topic)

    wait_until(lambda: have_succeeded(airflow, BEHIND, hours[-4:]), "the stream has caught up", within_s=900)
    storage = open_storage(behind.root, connections)
    bites = [path for path, _ in walk(storage, "_manifests") if path.endswith(".json")]
    read = [sum(shard["records"] for shard in read_json(storage, path)["shards"].values()) for path in bites]
    assert max(read) <= BITE
    assert len([count for count in read if count]) >= -(-(HOURS - 1) * LINES // BITE)
    assert sorted(visible_lines(storage)) == expected_lines(topic)
    counts = [read_json(storage, f"{hour.day}/{hour.hh}/_READY")["counts"]["lines"] for hour in hours]
    assert counts == [0, *[LINES] * (HOURS - 1)]
