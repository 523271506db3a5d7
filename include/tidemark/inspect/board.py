"""The readiness of many hours at a glance, for a page that is asked again and again.

Of a day that is closed its own node says all, of an open one those of its hours. A node is read once and kept until
ZooKeeper says that it changed, a flag for ever, since flags never change: sixty days of a stream cost a handful of
questions.
"""

import threading
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache, partial

from kazoo.client import KazooClient

from tidemark.config import Stream
from tidemark.environment import Connections
from tidemark.errors import NotFound
from tidemark.inspect.offsets import StreamOffsets, view_offsets
from tidemark.inspect.timelines import TimelineView, view_timelines
from tidemark.inspect.why import Asked, AsksAirflow, HourAnswer, explain_hour
from tidemark.inspect.workers import LeaseView, WorkerView, view_leases, view_workers
from tidemark.ledger import paths
from tidemark.ledger.records import DayRecord, HourRecord, HourState, Positions
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import Watch, children_of_many, read_many
from tidemark.names import HOUR_MS, Hour, duration_ms, hours_of_day, milliseconds
from tidemark.publish.flag import Flag, read_hour_flag
from tidemark.publish.sweep import unfinished_days
from tidemark.storage import Storage, open_storage

IN_TIME = timedelta(hours=1)
"""How long after its grace an hour that is not ready counts as late only, unless the stream has a `ready_within`."""
_KEPT_DAYS = 20_000
_KEPT_FLAGS = 100_000
_READERS = 8
_SHOWN_REVISIONS = 20
_NO_NODE = HourRecord()


class State(StrEnum):
    READY = "ready"
    REVISED = "revised"
    EMPTY = "empty"
    """Ready, and without a line."""
    GAP = "gap"
    """Lines may be lost: held by that, or, with a revision, published nevertheless."""
    OPEN = "open"
    """Not over."""
    LATE = "late"
    """Over and not ready, but still in time."""
    BLOCKED = "blocked"
    EXPIRED = "expired"
    """Removed by retention."""
    BEFORE = "before"
    """Not reached: before the stream's start, or nothing was ever planned."""


@dataclass(frozen=True, slots=True)
class Cell:
    """`is_held_by_gap`: its flag, or its next one, waits for an operator to accept a gap."""

    state: State
    revision: int
    is_held_by_gap: bool = False

    @classmethod
    def of(cls, state: State, record: HourRecord) -> "Cell":
        return cls(state, record.revision, _is_held_by_gap(record))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """`days` by their names, each with its 24 hours; the watermark is the lowest of the open shards."""

    stream: str
    watermark_ms: int | None
    days: Mapping[str, tuple[Cell, ...]]

    def held(self) -> list[Hour]:
        """Those that should be ready and are not, in the order of time."""
        return sorted(
            Hour.parse(f"{day}T{index:02d}")
            for day, cells in self.days.items()
            for index, cell in enumerate(cells)
            if not cell.revision and cell.state in (State.BLOCKED, State.GAP)
        )

    def held_by_gaps(self) -> int:
        return sum(cell.is_held_by_gap for cells in self.days.values() for cell in cells)

    @property
    def oldest_open(self) -> Hour | None:
        """The first that the stream reaches and that has no flag, be it over or not."""
        unready = (
            (day, index)
            for day, cells in self.days.items()
            for index, cell in enumerate(cells)
            if not cell.revision and cell.state not in (State.BEFORE, State.EXPIRED)
        )
        oldest = min(unready, default=None)
        return Hour.parse(f"{oldest[0]}T{oldest[1]:02d}") if oldest else None

    @property
    def newest_ready(self) -> Hour | None:
        flagged = (
            (day, index) for day, cells in self.days.items() for index, cell in enumerate(cells) if cell.revision
        )
        newest = max(flagged, default=None)
        return Hour.parse(f"{newest[0]}T{newest[1]:02d}") if newest else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagFacts:
    """`delay_ms`: from the hour's end to its first flag."""

    hour: Hour
    revision: int
    lines: int
    late: int
    bytes: int
    delay_ms: int


def state_of(hour: Hour, record: HourRecord, positions: Positions, now_ms: int, in_time_ms: int) -> State:
    """`in_time_ms`: how long after its end the hour may stay without a flag before somebody should look.

    Whether an hour is ready its revision says, and nothing else; of the others it tells apart what the rule does.
    """
    if record.revision or record.state is HourState.EXPIRED:
        return _flagged(record)
    if not positions.reaches(hour):
        return State.BEFORE
    if _is_held_by_gap(record):
        return State.GAP
    if now_ms < hour.end_ms:
        return State.OPEN
    return State.LATE if now_ms < hour.end_ms + in_time_ms else State.BLOCKED


def _is_held_by_gap(record: HourRecord) -> bool:
    return record.state is not HourState.EXPIRED and any(gap.accepted is None for gap in record.gaps)


def _flagged(record: HourRecord) -> State:
    if record.state is HourState.EXPIRED:
        return State.EXPIRED
    if record.gaps:
        return State.GAP
    return _ready(record.revision, is_empty=not record.archives)


def _ready(revision: int, *, is_empty: bool) -> State:
    if revision > 1:
        return State.REVISED
    return State.EMPTY if is_empty else State.READY


def in_time_ms(stream: Stream) -> int:
    """How long after its end an hour of the stream may stay without a flag."""
    return duration_ms(stream.ready_within or stream.grace + IN_TIME)


def last_days(now_ms: int, count: int) -> list[str]:
    """Today and the days before it, UTC, the newest first."""
    return [Hour.of(now_ms - back * 24 * HOUR_MS).day for back in range(count)]


@dataclass(frozen=True, slots=True)
class _Day:
    """The nodes of a day's hours, by their two digits; its cells instead if all 24 have a flag.

    `is_closed`: it is known from the day's node, which is as good as the hours' until somebody opens the day.
    """

    records: Mapping[str, HourRecord]
    cells: tuple[Cell, ...] | None
    is_closed: bool = False

    @classmethod
    def of_hours(cls, records: Mapping[str, HourRecord]) -> "_Day":
        is_settled = len(records) == 24 and all(record.revision for record in records.values())
        cells = tuple(Cell.of(_flagged(records[hh]), records[hh]) for hh in sorted(records))
        return cls({}, cells) if is_settled else cls(records, None)

    @classmethod
    def closed(cls, hours: Sequence[int], empty: Sequence[int]) -> "_Day":
        cells = (Cell(_ready(revision, is_empty=index in empty), revision) for index, revision in enumerate(hours))
        return cls({}, tuple(cells), is_closed=True)

    @property
    def revisions(self) -> dict[str, int]:
        if self.cells:
            return {f"{index:02d}": cell.revision for index, cell in enumerate(self.cells)}
        return {hh: record.revision for hh, record in self.records.items()}


class Board:
    """For one session; may be used by several threads. It only reads."""

    def __init__(self, client: KazooClient, connections: Connections) -> None:
        self._client = client
        self._connections = connections
        self._days = _KeptDays(client)
        self._storages: dict[str, Storage] = {}
        self._facts = lru_cache(maxsize=_KEPT_FLAGS)(self._read_facts)

    def calendars(self, streams: Sequence[Stream], days: Sequence[str], now_ms: int) -> list[Calendar]:
        """The days that have no node are those that nothing was written to: their hours are judged all the same."""
        return self._calendars(streams, [days] * len(streams), self._positions(streams), now_ms)

    def standing(self, streams: Sequence[Stream], now_ms: int) -> list[Calendar]:
        """What a stream is judged by: the days, however old and up to the present one, of which an hour has no flag
        yet or waits for the next, and the newest of the finished ones, for its newest ready hour."""
        positions = self._positions(streams)
        until_ms = Hour.of(now_ms).end_ms
        ledgers = _ListedDays.of_all(self._client, streams)
        days = [_days_to_judge(*both, until_ms) for both in zip(ledgers, positions, strict=True)]
        return self._calendars(streams, days, positions, now_ms)

    def facts(self, stream: Stream, days: Sequence[str]) -> list[FlagFacts]:
        """Of every hour with a flag, in the order of time; a flag that retention has deleted is left out."""
        known = self._days.read([(stream.name, day) for day in days])
        wanted = [
            (stream.root, Hour.parse(f"{day}T{hh}"), revision)
            for (_, day), found in known.items()
            for hh, revision in found.revisions.items()
            if revision
        ]
        self._storage(stream)
        with ThreadPoolExecutor(_READERS) as readers:
            found = readers.map(lambda asked: self._facts(*asked), wanted)
            return sorted((facts for facts in found if facts), key=lambda facts: facts.hour)

    def offsets(self, stream: Stream) -> StreamOffsets:
        return view_offsets(self._client, stream.name, self._connections)

    def timelines(self, stream: Stream) -> list[TimelineView]:
        return view_timelines(self._client, stream.name)

    def why(self, stream: Stream, hour: Hour, ask_airflow: AsksAirflow, now_ms: int) -> HourAnswer:
        asked = Asked(
            client=self._client,
            stream=stream,
            connections=self._connections,
            storage=self._storage(stream),
            ask_airflow=ask_airflow,
            now_ms=now_ms,
        )
        return explain_hour(asked, hour)

    def workers(self) -> tuple[list[WorkerView], list[LeaseView]]:
        return view_workers(self._client), view_leases(self._client)

    def revisions(self, stream: Stream, hour: Hour, newest: int) -> list[Flag]:
        """The flags of the hour, the newest first; at most the last twenty of them, without those that are gone."""
        storage = self._storage(stream)
        flags: list[Flag] = []
        for revision in range(newest, max(0, newest - _SHOWN_REVISIONS), -1):
            with suppress(NotFound):
                flags.append(read_hour_flag(storage, hour, revision))
        return flags

    def _positions(self, streams: Sequence[Stream]) -> list[Positions]:
        names = [paths.positions(stream.name) for stream in streams]
        found = read_many(self._client, dict.fromkeys(names), Positions)
        return [found.get(name, Positions()) for name in names]

    def _calendars(
        self, streams: Sequence[Stream], days: Sequence[Sequence[str]], positions: Sequence[Positions], now_ms: int
    ) -> list[Calendar]:
        """Of each stream its own days."""
        wanted = list(zip(streams, days, positions, strict=True))
        known = self._days.read([(stream.name, day) for stream, its, _ in wanted for day in its])
        return [_calendar(stream, standing, known, its, now_ms) for stream, its, standing in wanted]

    def _storage(self, stream: Stream) -> Storage:
        return self._storages.setdefault(stream.root, open_storage(stream.root, self._connections))

    def _read_facts(self, root: str, hour: Hour, revision: int) -> FlagFacts | None:
        with suppress(NotFound):
            newest = read_hour_flag(self._storages[root], hour, revision)
            first = newest if revision == 1 else read_hour_flag(self._storages[root], hour, 1)
            return FlagFacts(
                hour=hour,
                revision=revision,
                lines=newest["counts"]["lines"],
                late=newest["counts"]["late"],
                bytes=sum(file["bytes"] for file in newest["files"]),
                delay_ms=milliseconds(datetime.fromisoformat(first["published"])) - hour.end_ms,
            )
        return None


class _ListedDays(StreamLedger):
    """With its lists of days as they were read, together with those of other streams."""

    def __init__(self, client: KazooClient, stream: str, names: Mapping[str, Sequence[str]]) -> None:
        super().__init__(client, stream)
        self._names = names

    @classmethod
    def of_all(cls, client: KazooClient, streams: Sequence[Stream]) -> "list[_ListedDays]":
        folders = [folder(stream.name) for stream in streams for folder in (paths.days, paths.open_days)]
        names = children_of_many(client, dict.fromkeys(folders))
        return [cls(client, stream.name, names) for stream in streams]

    def days(self) -> list[str]:
        return sorted(self._names.get(paths.days(self.stream), ()))

    def open_days(self) -> list[str]:
        return sorted(self._names.get(paths.open_days(self.stream), ()))


def _days_to_judge(ledger: StreamLedger, positions: Positions, until_ms: int) -> list[str]:
    return sorted({*unfinished_days(ledger, positions, until_ms), *ledger.days()[-1:]})


def _calendar(
    stream: Stream, positions: Positions, known: Mapping[tuple[str, str], _Day], days: Iterable[str], now_ms: int
) -> Calendar:
    nothing, in_time = _Day({}, None), in_time_ms(stream)
    cells: dict[str, tuple[Cell, ...]] = {}
    for day in days:
        found = known.get((stream.name, day), nothing)
        cells[day] = found.cells or tuple(
            Cell.of(state_of(hour, record, positions, now_ms, in_time), record)
            for hour, record in ((hour, found.records.get(hour.hh, _NO_NODE)) for hour in hours_of_day(day))
        )
    return Calendar(stream=stream.name, watermark_ms=positions.lowest_watermark_ms, days=cells)


_Key = tuple[str, str]


class _KeptDays:
    """By stream and day. One watch a day stands for all of its nodes."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._kept: dict[_Key, _Day] = {}
        self._reading: dict[_Key, object] = {}
        self._watches: dict[_Key, Watch] = {}

    def read(self, keys: Sequence[_Key]) -> dict[_Key, _Day]:
        """Days without a node are left out."""
        streams = {stream for stream, _ in keys}
        folders = {folder(stream): None for stream in streams for folder in (paths.hours, paths.open_days)}
        names = children_of_many(self._client, folders)
        existing = {(stream, day) for stream in streams for day in names.get(paths.hours(stream), ())}
        opened = {(stream, day) for stream in streams for day in names.get(paths.open_days(stream), ())}
        with self._lock:
            if len(self._kept) > _KEPT_DAYS:
                self._kept.clear()
            kept = {key: self._kept[key] for key in keys if key in self._kept}
        found = {key: day for key, day in kept.items() if not (day.is_closed and key in opened)}
        return found | self._fetch([key for key in keys if key in existing and key not in found], opened)

    def _fetch(self, keys: Sequence[_Key], opened: Container[_Key]) -> dict[_Key, _Day]:
        """What changes between the reading and the keeping is not kept."""
        mark = object()
        with self._lock:
            self._reading.update(dict.fromkeys(keys, mark))
            watches = {key: self._watches.setdefault(key, partial(self._forget, key)) for key in keys}
        found = self._fetch_closed({key: watch for key, watch in watches.items() if key not in opened})
        found |= self._fetch_hours({key: watch for key, watch in watches.items() if key not in found})
        with self._lock:
            for key in keys:
                if self._reading.get(key) is mark:
                    self._kept[key] = found[key]
        return found

    def _fetch_closed(self, watches: Mapping[_Key, Watch]) -> dict[_Key, _Day]:
        """Those of which the day's node says all."""
        nodes = read_many(self._client, {paths.day(*key): watch for key, watch in watches.items()}, DayRecord)
        records = {key: nodes.get(paths.day(*key)) for key in watches}
        return {
            key: _Day.closed(record.hours, record.empty)
            for key, record in records.items()
            if record and record.empty is not None
        }

    def _fetch_hours(self, watches: Mapping[_Key, Watch]) -> dict[_Key, _Day]:
        folders = {paths.hours_of(*key): watch for key, watch in watches.items()}
        names = children_of_many(self._client, folders)
        wanted = {f"{folder}/{hh}": folders[folder] for folder, found in names.items() for hh in found}
        records: dict[_Key, dict[str, HourRecord]] = {key: {} for key in watches}
        for path, record in read_many(self._client, wanted, HourRecord).items():
            _, _, stream, _, day, hh = path.split("/")
            records[stream, day][hh] = record
        return {key: _Day.of_hours(hours) for key, hours in records.items()}

    def _forget(self, key: _Key, _event: object) -> None:
        with self._lock:
            self._kept.pop(key, None)
            self._reading.pop(key, None)
