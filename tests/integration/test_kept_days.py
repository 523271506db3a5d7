"""What the board keeps of real nodes: never what another session has changed since."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from kazoo.client import KazooClient
from tests.services import connections_of, unique

from tidemark.config import Stream
from tidemark.drive.services import now_ms
from tidemark.inspect.board import Board, Cell, State
from tidemark.ledger import paths
from tidemark.ledger.records import DayRecord, Gap, HourRecord, HourState
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.names import DAY_MS, Hour, hours_of_day
from tidemark.publish.sweep import Publisher, Sweep
from tidemark.stack import Stack
from tidemark.storage import open_storage

READY = HourRecord(state=HourState.READY, revision=1, archives=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """`client` and `board` are those of the page, `ledger` is of the session that changes the nodes."""

    client: KazooClient
    board: Board
    ledger: StreamLedger
    publisher: Publisher
    stream: Stream
    now_ms: int

    @property
    def yesterday(self) -> str:
        return Hour.of(self.now_ms - DAY_MS).day

    def seen(self, hour: Hour) -> tuple[State, int]:
        cell = self.cells(self.board, hour.day)[int(hour.hh)]
        return cell.state, cell.revision

    def cells(self, board: Board, day: str) -> tuple[Cell, ...]:
        # ZooKeeper tells a session of a change before it answers that session's next question.
        self.client.sync("/streams")
        (calendar,) = board.calendars([self.stream], [day], self.now_ms)
        return calendar.days[day]

    def save(self, hour: Hour, record: HourRecord) -> None:
        self.ledger.save_hour("test", hour, self.ledger.hour(hour), record)

    def flag_day(self, day: str) -> DayRecord:
        """As the publisher does when its 24 hours have a flag, and close it."""
        hours = tuple(self.ledger.hour(hour).value.revision for hour in hours_of_day(day))
        transaction = self.ledger.begin("test")
        self.ledger.put_day(
            transaction, day, self.ledger.day(day), DayRecord(state=HourState.READY, revision=1, hours=hours)
        )
        transaction.commit()
        return self.close(day)

    def close(self, day: str) -> DayRecord:
        assert self.publisher.sweep() == Sweep()
        assert self.ledger.open_days() == []
        return self.ledger.day(day).value


@pytest.fixture
def scene(stack: Stack) -> Iterator[Scene]:
    name, connections = unique("kept"), connections_of(stack)
    stream = Stream(name=name, cluster="main", topic=name, root=f"hdfs:///board/{name}", owner="test")
    with open_session(connections) as client, open_session(connections) as other:
        ledger = StreamLedger(other, name)
        ledger.prepare()
        yield Scene(
            client=client,
            board=Board(client, connections),
            ledger=ledger,
            publisher=Publisher(ledger=ledger, storage=open_storage(stream.root, connections), now_ms=now_ms),
            stream=stream,
            now_ms=now_ms(),
        )


def test_what_is_kept_of_an_hour_is_forgotten_when_it_changes(scene: Scene) -> None:
    hour = Hour.of(scene.now_ms)
    assert scene.seen(hour) == (State.BEFORE, 0)
    for revision, state in ((1, State.READY), (2, State.REVISED), (3, State.REVISED)):
        scene.save(hour, replace(READY, revision=revision, archives=revision))
        assert scene.seen(hour) == (state, revision)


def test_a_closed_day_is_read_from_one_node_and_says_what_its_hours_did(scene: Scene, stack: Stack) -> None:
    day = scene.yesterday
    hours = hours_of_day(day)
    for hour in hours:
        scene.save(hour, READY)
    scene.save(hours[3], replace(READY, archives=0))
    scene.save(hours[5], replace(READY, revision=2, archives=2))
    while_open = scene.cells(scene.board, day)
    assert (while_open[3], while_open[5]) == (Cell(State.EMPTY, 1), Cell(State.REVISED, 2))
    assert {*while_open[:3], while_open[4], *while_open[6:]} == {Cell(State.READY, 1)}
    assert scene.flag_day(day).empty == (3,)
    # Its hours are not asked for: one of them is gone.
    scene.ledger.client.delete(paths.hour(scene.stream.name, hours[7]))
    anew = Board(scene.client, connections_of(stack))
    assert scene.cells(scene.board, day) == scene.cells(anew, day) == while_open


def test_what_is_kept_of_a_closed_day_is_not_used_while_it_is_open_and_not_after(scene: Scene) -> None:
    day = scene.yesterday
    first, *others = hours_of_day(day)
    for hour in (first, *others):
        scene.save(hour, READY)
    assert scene.flag_day(day).empty == ()
    assert scene.seen(first) == (State.READY, 1)
    gap = Gap(shard="0001-0", start=1, end=2, since_ms=first.start_ms)
    scene.save(first, replace(READY, gaps=(gap,)))
    assert scene.seen(first) == (State.GAP, 1)
    assert scene.close(day).empty is None
    assert scene.cells(scene.board, day)[0] == Cell(State.GAP, 1, is_held_by_gap=True)
    scene.save(first, replace(READY, revision=2, archives=2))
    assert scene.seen(first) == (State.REVISED, 2)
    assert scene.flag_day(day).empty == ()
    assert scene.seen(first) == (State.REVISED, 2)
    scene.save(first, replace(READY, revision=3, archives=3))
    assert scene.seen(first) == (State.REVISED, 3)
    assert scene.flag_day(day).hours == (3, *(1 for _ in others))
    assert scene.seen(first) == (State.REVISED, 3)
