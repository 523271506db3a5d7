"""Sensors and their triggers on a real ZooKeeper: what they ask, how often they connect, how they fail."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient
from tests.airflow_library import (
    AirflowSensorTimeout,
    Context,
    DayReadySensor,
    HourOnTimeSensor,
    HourReadySensor,
    ReadyTrigger,
    TaskDeferred,
    ready,
    session,
)
from tests.services import connections_of, unique
from tests.waiting import wait_until

from tidemark.environment import Connection
from tidemark.errors import WrongUse
from tidemark.ledger.records import DayRecord
from tidemark.ledger.stream import StreamLedger
from tidemark.names import DAY_MS, Hour, moment
from tidemark.stack import Stack

HOUR = Hour.parse("2026-11-15T07")
MANY = 100
NOTHING: Any = {}


@pytest.fixture
def ledger(client: KazooClient) -> StreamLedger:
    ledger = StreamLedger(client, unique("sensed"))
    ledger.prepare()
    return ledger


@pytest.fixture
def context(ledger: StreamLedger, stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """What a sensor finds in a task: the connections in its environment, and a file of streams."""
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    streams = tmp_path / "streams.yaml"
    streams.write_text(
        f"streams:\n  {ledger.stream}: {{cluster: main, topic: t, root: 'hdfs:///{ledger.stream}', owner: test}}\n"
    )
    monkeypatch.setenv("TIDEMARK_STREAMS", str(streams))
    found: Context = NOTHING
    return found


@pytest.fixture
def in_triggerer(stack: Stack, sessions: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A triggerer that has just started, and ends with the test."""

    async def connection(conn_id: str) -> Connection:
        return connections_of(stack)(conn_id)

    monkeypatch.setattr(ready, "connection_from_triggerer", connection)
    monkeypatch.setattr(session, "_clients", {})
    monkeypatch.setattr(session, "_sessions", sessions)


def flag_hour(ledger: StreamLedger, revision: int) -> None:
    node = ledger.hour(HOUR)
    ledger.save_hour("flag", HOUR, node, replace(node.value, revision=revision))


def trigger_for(ledger: StreamLedger, *, revision: int = 1, seconds: float = 600) -> ReadyTrigger:
    return ReadyTrigger(stream=ledger.stream, subject=str(HOUR), revision=revision, deadline=time.time() + seconds)


async def revision_from(trigger: ReadyTrigger) -> int:
    async for event in trigger.run():
        return int(event.payload["revision"])
    raise AssertionError("the trigger ended without an event")


def connections_at(client: KazooClient) -> int:
    answer: str = client.command(b"mntr")
    counts = dict(line.split("\t", 1) for line in answer.splitlines() if "\t" in line)
    return int(counts["zk_num_alive_connections"])


@pytest.mark.usefixtures("in_triggerer")
def test_a_hundred_that_wait_share_one_connection_and_all_see_the_flag(
    ledger: StreamLedger, client: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = connections_at(client)
    asked: set[int] = set()
    asked_since_the_flag: Counter[int] = Counter()
    is_flagged = threading.Event()
    ask: Callable[[ReadyTrigger, Connection], int] = ReadyTrigger._ask

    def ask_and_tell(self: ReadyTrigger, connection: Connection) -> int:
        found = ask(self, connection)
        asked.add(id(self))
        asked_since_the_flag[id(self)] += is_flagged.is_set()
        return found

    monkeypatch.setattr(ReadyTrigger, "_ask", ask_and_tell)

    async def wait_for_all() -> list[int]:
        waiting = [asyncio.create_task(revision_from(trigger_for(ledger))) for _ in range(MANY)]
        await asyncio.to_thread(wait_until, lambda: len(asked) == MANY, "all of them wait")
        assert connections_at(client) == before + 1
        await asyncio.to_thread(flag_hour, ledger, 1)
        is_flagged.set()
        return list(await asyncio.gather(*waiting))

    assert asyncio.run(wait_for_all()) == [1] * MANY
    # One may have been under way when the flag came. Wanted are 5 seconds.
    assert max(asked_since_the_flag.values()) <= 2
    assert ready.POLL_S * 2 < 5


@pytest.mark.usefixtures("in_triggerer")
def test_a_trigger_waits_for_the_revision_that_is_asked_for_and_gives_up_at_its_deadline(ledger: StreamLedger) -> None:
    flag_hour(ledger, 1)
    assert asyncio.run(revision_from(trigger_for(ledger, revision=2, seconds=0))) == 0
    flag_hour(ledger, 2)
    assert asyncio.run(revision_from(trigger_for(ledger, revision=2))) == 2


@pytest.mark.usefixtures("in_triggerer")
def test_a_trigger_outlives_a_restart_of_zookeeper(ledger: StreamLedger, stack: Stack) -> None:
    async def wait() -> int:
        waiting = asyncio.create_task(revision_from(trigger_for(ledger)))
        await asyncio.sleep(0)
        await asyncio.to_thread(stack.kill, "zookeeper")
        await asyncio.to_thread(stack.start, "zookeeper")
        await asyncio.to_thread(flag_hour, ledger, 1)
        return await waiting

    assert asyncio.run(wait()) == 1


def test_a_sensor_succeeds_at_once_or_defers(ledger: StreamLedger, context: Context) -> None:
    sensor = HourReadySensor(task_id="wait", stream=ledger.stream, hour=str(HOUR), revision=2)
    flag_hour(ledger, 1)
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(context)
    assert isinstance(deferred.value.trigger, ReadyTrigger)
    assert deferred.value.trigger.serialize()[1]["subject"] == str(HOUR)
    flag_hour(ledger, 2)
    assert sensor.execute(context) == 2


def test_a_day_is_waited_for_like_an_hour(ledger: StreamLedger, context: Context) -> None:
    sensor = DayReadySensor(task_id="wait", stream=ledger.stream, day=HOUR.day)
    with pytest.raises(TaskDeferred):
        sensor.execute(context)
    transaction = ledger.begin("flag")
    transaction.put(f"/streams/{ledger.stream}/days/{HOUR.day}", DayRecord(revision=1), version=-1)
    transaction.commit()
    assert sensor.execute(context) == 1


@pytest.mark.parametrize(
    ("run_type", "since"),
    [("scheduled", moment(HOUR.end_ms)), ("backfill", moment(HOUR.end_ms + 365 * DAY_MS))],
)
def test_an_hour_is_late_from_its_end_on_but_a_backfill_of_an_old_one_only_from_its_own_start(
    ledger: StreamLedger, context: Context, run_type: str, since: datetime
) -> None:
    """With the hour's end in place of the start of a backfill every old hour would be late at once."""
    sensor = HourOnTimeSensor(task_id="wait", stream=ledger.stream, hour=str(HOUR), within=timedelta(minutes=20))
    run = SimpleNamespace(run_type=run_type, start_date=moment(HOUR.end_ms + 365 * DAY_MS))
    found: Any = {"dag_run": run}
    assert sensor.deadline(found) == (since + timedelta(minutes=20)).timestamp()
    with pytest.raises(AirflowSensorTimeout, match="nothing was ever planned for the stream"):
        sensor.complete(context, {"revision": 0})


@pytest.mark.usefixtures("context")
def test_an_hour_that_is_late_already_fails_at_once_and_one_that_is_not_is_waited_for(ledger: StreamLedger) -> None:
    """Airflow tries a task again, and alerts again, whose trigger fires before its executor has reported."""
    sensor = HourOnTimeSensor(task_id="wait", stream=ledger.stream, hour=str(HOUR), within=timedelta(minutes=20))
    now = datetime.now(UTC)
    late: Any = {"dag_run": SimpleNamespace(run_type="manual", start_date=now - timedelta(minutes=21))}
    with pytest.raises(AirflowSensorTimeout, match="nothing was ever planned for the stream"):
        sensor.execute(late)
    in_time: Any = {"dag_run": SimpleNamespace(run_type="manual", start_date=now)}
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(in_time)
    assert deferred.value.trigger.serialize()[1]["deadline"] == (now + timedelta(minutes=20)).timestamp()


def test_a_time_out_fails_with_the_reasons(ledger: StreamLedger, context: Context) -> None:
    sensor = HourReadySensor(task_id="wait", stream=ledger.stream, hour=str(HOUR))
    with pytest.raises(AirflowSensorTimeout, match="not ready\n  - nothing was ever planned for the stream"):
        sensor.complete(context, {"revision": 0})


@pytest.mark.parametrize(
    ("hour", "wanted"),
    [
        ("2026-11-15T07:00:00", "wanted UTC, such as 2026-11-15T07"),
        ("2026-11-15T07:00:00+02:00", "wanted UTC, such as 2026-11-15T07"),
        ("2026-11-15", "as an hour"),
    ],
)
def test_a_wrong_or_naive_time_fails_at_once(ledger: StreamLedger, context: Context, hour: str, wanted: str) -> None:
    with pytest.raises(WrongUse, match=wanted):
        HourReadySensor(task_id="wait", stream=ledger.stream, hour=hour).execute(context)


def test_a_wrong_stream_fails_at_once(context: Context) -> None:
    with pytest.raises(WrongUse, match="clicsk"):
        HourReadySensor(task_id="wait", stream="clicsk", hour=str(HOUR)).execute(context)
