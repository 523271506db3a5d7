"""Publishing that is killed between any two of its steps, and what a sweep looks at, on a real ZooKeeper."""

import hashlib
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
from tidemark.drive.publish import Unpublished, events_to_send, publish_stream
from tidemark.drive.services import now_ms
from tidemark.errors import CommitFailed, NotFound, ServiceUnreachable
from tidemark.failpoints import FAILPOINTS, Failpoint
from tidemark.ledger.records import Publication
from tidemark.ledger.stream import StreamLedger
from tidemark.names import DAY_MS, Hour, Interval, hours_of_day
from tidemark.publish.announce import confirm, unannounced_flags
from tidemark.publish.sweep import Publisher, Sweep
from tidemark.stack import Stack
from tidemark.stack.processes import plain_environment
from tidemark.storage import Storage, open_storage

STEPS = tuple(name for name in FAILPOINTS if name.startswith("publish."))
STEPS_OF_EVENTS = tuple(name for name in FAILPOINTS if name.startswith("announce."))
MIDNIGHT = hours_of_day(FIRST.day)[0]
PUBLISH = """
import sys
from tidemark.config import load_stream
from tidemark.drive.publish import Unpublished, events_to_send, publish_stream
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


def test_an_hour_that_another_sweep_published_meanwhile_gets_no_second_flag(
    stack: Stack, client: KazooClient, consumed: Callable[[int], Stream]
) -> None:
    stream = consumed(1)
    ledger, storage = StreamLedger(client, stream.name), open_storage(stream.root, connections_of(stack))
    slow, fast = (Publisher(ledger=ledger, storage=storage, now_ms=now_ms) for _ in range(2))
    assert fast.publish_hour(MIDNIGHT)
    assert slow.publish_hour(MIDNIGHT) is None
    assert ledger.hour(MIDNIGHT).value.revision == 1


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


def test_an_hour_that_cannot_be_published_keeps_no_other_from_it_and_is_told_at_the_end(
    stack: Stack, consumed: Callable[[int], Stream]
) -> None:
    stream = consumed(2)
    storage = open_storage(stream.root, connections_of(stack))
    bad, others = hours_of_day(MIDNIGHT.day)[3], hours_of_day(Hour(MIDNIGHT.start_ms + DAY_MS).day)
    storage.create(layout.hour_flag(bad, 1), b"of somebody else")
    storage.create(layout.day_flag(others[0].day, 1), b"of somebody else")
    with pytest.raises(Unpublished) as raised:
        publish_stream(stream, connections_of(stack), TASK)
    told = f"Cannot publish 2 hours or days of {stream.name}: {bad}, {others[0].day}; {bad}: Cannot publish "
    assert str(raised.value).startswith(told)
    wanted = [(str(hour), 1) for hour in (*hours_of_day(MIDNIGHT.day), *others) if hour != bad]
    assert [(flag.subject, flag.revision) for flag in raised.value.swept.published] == wanted
    assert [(flag.subject, flag.revision) for flag in raised.value.swept.unannounced] == wanted
    with pytest.raises(Unpublished, match=told):
        publish_stream(stream, connections_of(stack), TASK)

    storage.delete(layout.hour_flag(bad, 1))
    storage.delete(layout.day_flag(others[0].day, 1))
    published = publish_stream(stream, connections_of(stack), TASK).published
    assert [flag.subject for flag in published] == [str(bad), MIDNIGHT.day, others[0].day]


def test_a_flag_that_cannot_be_read_keeps_only_its_day_from_being_published(
    stack: Stack, client: KazooClient, consumed: Callable[[int], Stream]
) -> None:
    stream = consumed(2)
    ledger, storage = StreamLedger(client, stream.name), open_storage(stream.root, connections_of(stack))
    publisher = Publisher(ledger=ledger, storage=storage, now_ms=now_ms)
    assert publisher.publish_hour(MIDNIGHT)
    storage.delete(layout.hour_flag(MIDNIGHT, 1))
    storage.create(layout.hour_flag(MIDNIGHT, 1), b'{"cut off')
    swept = publisher.sweep()
    assert list(swept.failed) == [MIDNIGHT.day]
    assert swept.published[-1].subject == Hour(MIDNIGHT.start_ms + DAY_MS).day


def test_a_service_that_is_away_ends_the_sweep_at_once(
    stack: Stack, consumed: Callable[[int], Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every hour would wait for it as long."""
    stream, asked = consumed(1), list[Hour]()

    def publish_hour(_: Publisher, hour: Hour) -> None:
        asked.append(hour)
        raise ServiceUnreachable("Cannot reach HDFS")

    monkeypatch.setattr(Publisher, "publish_hour", publish_hour)
    with pytest.raises(ServiceUnreachable):
        publish_stream(stream, connections_of(stack), TASK)
    assert asked == [MIDNIGHT]


class Died(BaseException):
    """Goes through every handler, as a power cut does."""


def test_an_hour_and_a_day_of_which_body_and_flag_are_gone_are_decided_anew_and_a_zombie_finds_nothing_to_rename(
    stack: Stack, client: KazooClient, consumed: Callable[[int], Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = consumed(1)
    ledger, storage = StreamLedger(client, stream.name), open_storage(stream.root, connections_of(stack))
    publisher = Publisher(ledger=ledger, storage=storage, now_ms=now_ms)

    def die(*_: object) -> None:
        raise Died

    def decide_and_die(publish: Callable[[], object]) -> Publication:
        with monkeypatch.context() as patched:
            patched.setattr(Publisher, "_place", die)
            with pytest.raises(Died):
                publish()
        hour, day = ledger.hour(MIDNIGHT).value.publishing, ledger.day(MIDNIGHT.day).value.publishing
        decided = hour or day
        assert decided
        storage.delete("_tmp", recursive=True)
        return decided

    first = decide_and_die(lambda: publisher.publish_hour(MIDNIGHT))
    assert len(publisher.sweep().published) == 25
    digest = hashlib.sha256(storage.read(layout.hour_flag(MIDNIGHT, 1))).hexdigest()
    assert digest != first.digest
    with pytest.raises(NotFound):
        storage.rename(first.path, layout.hour_flag(MIDNIGHT, 2))

    node = ledger.hour(MIDNIGHT)
    ledger.save_hour("make dirty", MIDNIGHT, node, replace(node.value, revision=2))
    storage.create(layout.hour_flag(MIDNIGHT, 2), storage.read(layout.hour_flag(MIDNIGHT, 1)))
    decide_and_die(lambda: publisher.publish_day(MIDNIGHT.day))
    assert publisher.sweep() == Sweep()
    assert [flag.subject for flag in publisher.sweep().published] == [MIDNIGHT.day]
    assert read_json(storage, layout.day_flag(MIDNIGHT.day, 2))["revision"] == 2


def test_a_sweep_looks_at_days_that_are_not_finished_and_at_no_others(
    stack: Stack, client: KazooClient, consumed: Callable[[int], Stream]
) -> None:
    stream = consumed(3)
    days = [Hour(MIDNIGHT.start_ms + number * DAY_MS).day for number in range(3)]
    ledger = StreamLedger(client, stream.name)
    publisher = Publisher(ledger=ledger, storage=open_storage(stream.root, connections_of(stack)), now_ms=now_ms)
    assert publisher.days_to_look_at() == days
    assert len(publisher.sweep().published) == 3 * 25
    # Not before Airflow is known to have been told of each.
    assert publisher.days_to_look_at() == days
    flags = unannounced_flags(ledger, ledger.open_days())
    confirm(ledger, [flag for flag in flags if not flag.subject.startswith(days[1])])
    assert publisher.sweep() == Sweep()
    assert publisher.days_to_look_at() == [days[1]]
    confirm(ledger, flags)
    assert publisher.sweep() == Sweep()
    assert publisher.days_to_look_at() == []

    late = Hour(MIDNIGHT.start_ms)
    node = ledger.hour(late)
    ledger.save_hour("make dirty", late, node, replace(node.value, dirty=(2,)))
    assert publisher.days_to_look_at() == [days[0]]
    assert publisher.sweep() == Sweep()
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
