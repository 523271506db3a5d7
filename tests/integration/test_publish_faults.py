"""Publishing that is killed between any two of its steps, and what a sweep looks at, on a real ZooKeeper."""

import json
import subprocess
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from tests.pipeline import FIRST, TASK
from tests.services import KafkaTopic, connections_of, read_json, unique, walk

from tidemark import layout
from tidemark.config import Stream
from tidemark.drive.consume import consume_interval
from tidemark.drive.publish import events_to_send, publish_stream
from tidemark.drive.services import now_ms
from tidemark.errors import CommitFailed
from tidemark.failpoints import FAILPOINTS, Failpoint
from tidemark.ledger.stream import StreamLedger
from tidemark.names import DAY_MS, Hour, Interval, hours_of_day
from tidemark.publish.announce import confirm, unannounced_flags
from tidemark.publish.sweep import Publisher
from tidemark.stack import Stack
from tidemark.stack.processes import plain_environment
from tidemark.storage import Storage, open_storage

STEPS = tuple(name for name in FAILPOINTS if name.startswith("publish."))
STEPS_OF_EVENTS = tuple(name for name in FAILPOINTS if name.startswith("announce."))
MIDNIGHT = hours_of_day(FIRST.day)[0]
PUBLISH = """
import sys
from tidemark.config import load_stream
from tidemark.drive.publish import events_to_send, publish_stream
from tidemark.environment import connection_from_environment as connections, streams_file
from tidemark.names import Task
stream = load_stream(streams_file(), sys.argv[1])
swept = publish_stream(stream, connections, Task(name="killed", attempt=1))
events_to_send(stream.name, connections, swept.unannounced, lambda _: ())
"""


@pytest.fixture(scope="module")
def topic(stack: Stack) -> KafkaTopic:
    """Empty: what is published of it takes no Spark."""
    return KafkaTopic(stack, unique("quiet"), 2)


@pytest.fixture
def consumed(stack: Stack, topic: KafkaTopic, tmp_path: Path) -> Callable[[int], Stream]:
    """A stream of which so many days are consumed, by one long interval, and nothing is published."""

    def consume(days: int) -> Stream:
        name = unique("published")
        root = f"file://{tmp_path}/{name}"
        stream = Stream(name=name, cluster="main", topic=topic.name, root=root, owner="test")
        interval = Interval(MIDNIGHT.start_ms, MIDNIGHT.start_ms + days * DAY_MS)
        consume_interval(stream, interval, connections_of(stack), TASK, pytest.fail)
        return stream

    return consume


def publish_and_be_killed(stack: Stack, stream: Stream, step: Failpoint, folder: Path) -> None:
    settings = {name: getattr(stream, name) for name in ("cluster", "topic", "root", "owner")}
    (folder / "streams.yaml").write_text(json.dumps({"streams": {stream.name: settings}}))
    witness = folder / "witness"
    environment = {
        **plain_environment(),
        **stack.environment(),
        "TIDEMARK_STREAMS": str(folder / "streams.yaml"),
        "TIDEMARK_FAILPOINT": f"{step}=kill",
        "TIDEMARK_FAILPOINT_WITNESS": str(witness),
    }
    command = [sys.executable, "-c", PUBLISH, stream.name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert witness.read_text().split() == [step], done.stderr
    assert done.returncode == -9


def flags_of(storage: Storage) -> dict[str, Any]:
    """All that is there, by path, but for the times of publishing and the stream's name."""
    found = {path: read_json(storage, path) for path, _ in walk(storage) if "_manifests" not in path}
    return {path: flag | {"published": None, "stream": None} for path, flag in found.items()}


@pytest.mark.parametrize("step", STEPS)
def test_a_publisher_killed_at_any_step_is_followed_by_one_that_ends_with_each_flag_once_and_tells_of_each(
    stack: Stack, client: KazooClient, consumed: Callable[[int], Stream], tmp_path: Path, step: Failpoint
) -> None:
    killed, twin = consumed(1), consumed(1)
    publish_and_be_killed(stack, killed, step, tmp_path)
    swept = {stream.name: publish_stream(stream, connections_of(stack), TASK) for stream in (killed, twin)}
    storages = {stream.name: open_storage(stream.root, connections_of(stack)) for stream in (killed, twin)}
    day = MIDNIGHT.day
    wanted = sorted([*(str(hour) for hour in hours_of_day(day)), day])
    for name, storage in storages.items():
        assert sorted((flag.subject, flag.revision) for flag in swept[name].unannounced) == [(s, 1) for s in wanted]
        assert sorted(path for path in flags_of(storage) if not path.startswith("_")) == sorted(
            [*(layout.hour_flag(hour, 1) for hour in hours_of_day(day)), layout.day_flag(day, 1)]
        )
        assert storage.list("_tmp") == []
    assert flags_of(storages[killed.name]) == flags_of(storages[twin.name])
    ledger = StreamLedger(client, killed.name)
    assert {ledger.hour(hour).value.revision for hour in hours_of_day(day)} == {1}
    assert ledger.day(day).value.revision == 1
    assert publish_stream(killed, connections_of(stack), TASK).published == []


def refuse_to_answer(since_ms: int) -> None:
    pytest.fail(f"nobody has to be asked, for events since {since_ms} neither")


def test_an_event_is_sent_until_it_is_seen_and_never_while_nobody_can_tell(
    stack: Stack, client: KazooClient, consumed: Callable[[int], Stream]
) -> None:
    stream = consumed(1)
    flags = publish_stream(stream, connections_of(stack), TASK).unannounced
    send = partial(events_to_send, stream.name, connections_of(stack), flags)
    all_of_them = sorted((flag.subject, flag.revision) for flag in flags)
    assert len(all_of_them) == 25

    def sent(ask: Callable[[int], Collection[tuple[str, int]] | None]) -> list[tuple[str, int]]:
        return sorted((flag.subject, flag.revision) for flag in send(ask))

    # What was never handed over needs no question; the task that took them dies.
    assert sent(refuse_to_answer) == all_of_them
    assert sent(lambda _: None) == []
    # Twenty of them had arrived, for all that.
    assert sent(lambda _: all_of_them[:20]) == all_of_them[20:]
    assert sent(lambda _: all_of_them) == []
    assert sent(refuse_to_answer) == []
    ledger = StreamLedger(client, stream.name)
    assert unannounced_flags(ledger, ledger.open_days()) == []


@pytest.mark.parametrize("step", STEPS_OF_EVENTS)
def test_a_task_killed_before_it_sent_its_events_is_followed_by_one_that_sends_each(
    stack: Stack, consumed: Callable[[int], Stream], tmp_path: Path, step: Failpoint
) -> None:
    stream = consumed(1)
    publish_and_be_killed(stack, stream, step, tmp_path)
    flags = publish_stream(stream, connections_of(stack), TASK).unannounced
    send = partial(events_to_send, stream.name, connections_of(stack), flags)
    sent = [(flag.subject, flag.revision) for flag in send(lambda _: ())]
    assert sorted(sent) == [(subject, 1) for subject in sorted([*map(str, hours_of_day(MIDNIGHT.day)), MIDNIGHT.day])]
    assert send(lambda _: sent) == []


def test_a_sweep_looks_at_days_that_are_not_finished_and_at_no_others(
    stack: Stack, client: KazooClient, consumed: Callable[[int], Stream]
) -> None:
    stream = consumed(3)
    days = [Hour(MIDNIGHT.start_ms + number * DAY_MS).day for number in range(3)]
    ledger = StreamLedger(client, stream.name)
    publisher = Publisher(ledger=ledger, storage=open_storage(stream.root, connections_of(stack)), now_ms=now_ms)
    assert publisher.days_to_look_at() == days
    assert len(publisher.sweep()) == 3 * 25
    # Not before Airflow is known to have been told of each.
    assert publisher.days_to_look_at() == days
    flags = unannounced_flags(ledger, ledger.open_days())
    confirm(ledger, [flag for flag in flags if not flag.subject.startswith(days[1])])
    assert publisher.sweep() == []
    assert publisher.days_to_look_at() == [days[1]]
    confirm(ledger, flags)
    assert publisher.sweep() == []
    assert publisher.days_to_look_at() == []

    late = Hour(MIDNIGHT.start_ms)
    node = ledger.hour(late)
    ledger.save_hour("make dirty", late, node, replace(node.value, dirty=(2,)))
    assert publisher.days_to_look_at() == [days[0]]
    assert publisher.sweep() == []
    assert publisher.days_to_look_at() == [days[0]]


def test_a_day_is_not_closed_behind_the_back_of_one_who_writes_to_it(
    stack: Stack, client: KazooClient, consumed: Callable[[int], Stream]
) -> None:
    """With a mark that is made before the transaction instead of in it the day would stay closed, the line unseen."""
    stream = consumed(1)
    ledger = StreamLedger(client, stream.name)
    publisher = Publisher(ledger=ledger, storage=open_storage(stream.root, connections_of(stack)), now_ms=now_ms)
    publisher.sweep()
    confirm(ledger, unannounced_flags(ledger, ledger.open_days()))
    late, last = MIDNIGHT, hours_of_day(MIDNIGHT.day)[-1]

    def write() -> None:
        for hour in (late, last):
            node = ledger.hour(hour)
            ledger.put_hour(transaction, hour, node, replace(node.value, dirty=(2,)))

    transaction = ledger.begin("commit")
    write()
    publisher.sweep()
    assert ledger.open_days() == []
    with pytest.raises(CommitFailed):
        transaction.commit()
    transaction = ledger.begin("commit")
    write()
    transaction.commit()
    assert ledger.open_days() == [late.day]
