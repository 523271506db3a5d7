"""The readiness board with 50 streams of 60 days: how long the server needs to answer, first and again."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient

from tidemark.config import Stream
from tidemark.environment import Connections
from tidemark.inspect.board import Board, Calendar, last_days
from tidemark.inspect.check import StreamCheck, check_streams
from tidemark.ledger import paths
from tidemark.ledger.records import DayRecord, HourRecord, HourState, Positions, ShardPosition, dump
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.names import HOUR_MS, Hour, Shard, hours_of_day

STREAMS, DAYS, OVERVIEW_DAYS, PARTITIONS = 50, 60, 2, 12
_AT_ONCE = 500
_READY = HourRecord(state=HourState.READY, revision=1, archives=1)
_CLOSED = DayRecord(state=HourState.READY, revision=1, hours=(1,) * 24, empty=())


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardTimes:
    """In seconds, of what a page asks for: two days of all streams, 60 days of one; and of all 60 days of all; each
    with what `tidemark check` says of the streams."""

    overview_first: float
    overview_again: float
    calendar_first: float
    calendar_again: float
    everything_first: float
    everything_again: float


def time_board(connections: Connections, now_ms: int) -> BoardTimes:
    streams = [stream_of(f"board-{number:02d}") for number in range(STREAMS)]
    days, recent = last_days(now_ms, DAYS), last_days(now_ms, OVERVIEW_DAYS)
    with open_session(connections) as client:
        for stream in streams:
            fill(client, stream, days, now_ms)
    with open_session(connections) as client:
        board = Board(client, connections)

        def ask(asked: Sequence[Stream], wanted: Sequence[str]) -> float:
            return _time(lambda: (board.calendars(asked, wanted, now_ms), check_streams(board, asked, now_ms)))

        overview = ask(streams, recent), ask(streams, recent)
        calendar = ask(streams[:1], days), ask(streams[:1], days)
        everything = ask(streams, days), ask(streams, days)
        return BoardTimes(
            overview_first=overview[0],
            overview_again=overview[1],
            calendar_first=calendar[0],
            calendar_again=calendar[1],
            everything_first=everything[0],
            everything_again=everything[1],
        )


def stream_of(name: str) -> Stream:
    return Stream(name=name, cluster="main", topic=name, root=f"file:///bench/{name}", owner="bench")


def fill(client: KazooClient, stream: Stream, days: Sequence[str], now_ms: int) -> None:
    """Hours and days as the publisher leaves those of a stream that is ready up to now."""
    ledger = StreamLedger(client, stream.name)
    ledger.prepare()
    up_to = Hour.of(now_ms).start_ms
    start = hours_of_day(min(days))[0].start_ms
    position = ShardPosition(start=0, next=1_000_000, watermark_ms=up_to, digest=None)
    shards = {Shard(1, partition): position for partition in range(PARTITIONS)}
    client.set(paths.positions(stream.name), dump(Positions(start_ms=start, first_ms=start).with_shards(shards)))
    for day in days:
        client.ensure_path(paths.hours_of(stream.name, day))
    hours = [Hour(begin) for begin in range(start, up_to, HOUR_MS)]
    nodes: dict[str, object] = {paths.hour(stream.name, hour): _READY for hour in hours}
    nodes |= {paths.day(stream.name, day): _CLOSED for day in days if day != Hour.of(now_ms).day}
    names = list(nodes)
    for index in range(0, len(names), _AT_ONCE):
        transaction = ledger.begin("fill the board")
        for path in names[index : index + _AT_ONCE]:
            transaction.put(path, nodes[path], version=-1)
        transaction.commit()
    client.create(paths.open_day(stream.name, Hour.of(now_ms).day))


def _time(read: Callable[[], tuple[list[Calendar], list[StreamCheck]]]) -> float:
    """With the JSON that goes out, without Airflow's part: login and HTTP."""
    begin = time.monotonic()
    calendars, checks = read()
    json.dumps([[_as_json(calendar) for calendar in calendars], [check.as_json() for check in checks]])
    return time.monotonic() - begin


def _as_json(calendar: Calendar) -> dict[str, Any]:
    return {day: [[cell.state, cell.revision] for cell in cells] for day, cells in calendar.days.items()}
