"""A task that is killed again and again: Airflow's own retries end it as if nothing had happened."""

from pathlib import Path

import pytest
from tests.armed import write_streams
from tests.integration.test_airflow import client_of
from tests.services import KafkaTopic, Sent, connections_of, read_json, visible_lines
from tests.waiting import wait_until

from tidemark.config import load_stream
from tidemark.drive.services import now_ms
from tidemark.failpoints import Failpoint
from tidemark.names import HOUR_MS, Hour
from tidemark.stack import Stack
from tidemark.storage import open_storage

STEPS: tuple[Failpoint, ...] = ("consume.after_read", "commit.after_pending", "commit.after_moves")
"""The first two end the driver that Spark's operator submitted, the last the task that rolls its work forward."""
DAG = "ingest_retried"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("retries")
    write_streams(folder, ("retried",))
    return folder


@pytest.fixture(scope="module")
def steps() -> tuple[Failpoint, ...]:
    return STEPS


def test_a_task_that_is_killed_at_three_steps_succeeds_with_its_fourth_try(own_stack: Stack, folder: Path) -> None:
    topic = KafkaTopic(own_stack, "retried", 2)
    hour = Hour(Hour.of(now_ms() - 61_000).start_ms - HOUR_MS)
    sent = [Sent(partition=n % 2, time_ms=hour.start_ms + n, value=f"line {n}".encode()) for n in range(300)]
    topic.send(sent)
    airflow = client_of(own_stack)
    airflow.wait_for_dags((DAG,))
    airflow.backfill(DAG, [hour])
    airflow.unpause(DAG)

    def has_ended() -> bool:
        tasks = {task.task: task for task in airflow.tasks(DAG) if task.hour == hour}
        for task in tasks.values():
            assert task.state not in ("failed", "upstream_failed"), airflow.log_tail(task)
        return bool(tasks) and all(task.state == "success" for task in tasks.values())

    wait_until(has_ended, "the hour is done", within_s=900)
    assert tuple((folder / "witness").read_text().split()) == STEPS
    tries = {task.task: task.attempt for task in airflow.tasks(DAG) if task.hour == hour}
    assert tries == {"plan": 1, "consume": len(STEPS) + 1, "archive": 1, "publish": 1, "announce": 1, "complete": 1}
    storage = open_storage(load_stream(folder / "streams.yaml", "retried").root, connections_of(own_stack))
    assert sorted(visible_lines(storage)) == sorted((record.time_ms, record.value) for record in sent)
    assert read_json(storage, f"{hour.day}/{hour.hh}/_READY")["counts"]["lines"] == len(sent)
