"""What the tests of the board look at: a stream with an empty hour, and one with a gap whose reason is markup."""

import sqlite3
from contextlib import closing
from typing import NoReturn

from sqlalchemy import make_url
from tests.pipeline import TASK, at, interval_of
from tests.services import KafkaTopic, Sent, connections_of

from tidemark.config import Stream
from tidemark.demo.airflow import AirflowClient
from tidemark.drive.acts import accept_hour
from tidemark.drive.archive import archive_stream
from tidemark.drive.consume import consume_interval
from tidemark.drive.plan import plan_interval
from tidemark.drive.publish import publish_stream
from tidemark.drive.services import now_ms
from tidemark.inspect.board import last_days
from tidemark.names import HOUR_MS, Hour, isoformat
from tidemark.stack import Stack

# The board shows the last days: these hours are a week old whenever the tests run.
FIRST = Hour.parse(f"{last_days(now_ms(), 8)[-1]}T22")
SECOND = Hour(FIRST.end_ms)
THIRD = Hour(SECOND.end_ms)
FOURTH = Hour(THIRD.end_ms)
MARKUP = "<img src=x onerror=\"document.title='owned'\">"


def fill(stream: Stream, stack: Stack) -> None:
    """The first hour is empty, in the second all records expired unread, which was found in the third. That and the
    fourth were never consumed."""
    topic = KafkaTopic(stack, stream.topic, 2)
    _run(stream, stack, FIRST)
    topic.send(Sent(partition=1, time_ms=SECOND.start_ms, value=b"lost") for _ in range(5))
    topic.expire_before(1, 5)
    with at(SECOND.end_ms + HOUR_MS // 2):
        _run(stream, stack, SECOND)
    accept_hour(stream, SECOND, MARKUP, connections_of(stack), TASK)
    publish_stream(stream, connections_of(stack), TASK)
    topic.send([Sent(partition=0, time_ms=THIRD.start_ms, value=b"line")])
    plan_interval(stream, interval_of(THIRD), connections_of(stack), TASK)


def _run(stream: Stream, stack: Stack, hour: Hour) -> None:
    connections = connections_of(stack)
    plan_interval(stream, interval_of(hour), connections, TASK)
    consume_interval(stream, interval_of(hour), connections, TASK, _no_spark)
    archive_stream(stream, connections, TASK, _no_spark)
    publish_stream(stream, connections, TASK)


def _no_spark() -> NoReturn:
    raise AssertionError("an hour without records needs no Spark")


def begin_run(stack: Stack, dag: str, hour: Hour) -> str:
    """A run of the hour whose `plan` ended well and whose mapped `announce` runs; the DAG is paused, nothing starts.

    It is made by Airflow; what its scheduler would then note of the tasks is put into its database.
    """
    login = stack.login()
    airflow = AirflowClient(login.address, login.user, login.password, stack.environment())
    run = f"manual__{hour}"
    body = {
        "dag_run_id": run,
        "logical_date": isoformat(hour.start_ms),
        "data_interval_start": isoformat(hour.start_ms),
        "data_interval_end": isoformat(hour.end_ms),
    }
    answer = airflow._request("POST", f"/api/v2/dags/{dag}/dagRuns", json=body)
    assert answer.ok or answer.status_code == 409, answer.text
    database = make_url(stack.environment()["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]).database
    assert database
    with closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        for second, (task, state, map_index) in enumerate((("plan", "success", -1), ("announce", "running", 0))):
            connection.execute(
                "UPDATE task_instance SET state = ?, map_index = ?, try_number = 1, start_date = ?"
                " WHERE dag_id = ? AND run_id = ? AND task_id = ?",
                (state, map_index, f"2026-01-01 00:00:0{second}.000000", dag, run, task),
            )
    return run
