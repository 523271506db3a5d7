"""The readiness of many hours at a glance, for a page that is asked again and again.

An hour's node is read once and kept until ZooKeeper says that it changed, a flag for ever, since flags never change:
sixty days of a stream cost a handful of questions.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
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
from tidemark.inspect.workers import LeaseView, WorkerView, view_leases, view_workers
from tidemark.ledger import paths
from tidemark.ledger.records import HourRecord, HourState, Positions, Timeline
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
    if record.revision > 1:
        return State.REVISED
    return State.READY if record.archives else State.EMPTY


def in_time_ms(stream: Stream) -> int:
    """How long after its end an hour of the stream may stay without a flag."""
    return duration_ms(stream.ready_within or stream.grace + IN_TIME)


def last_days(now_ms: int, count: int) -> list[str]:
    """Today and the days before it, UTC, the newest first."""
    return [Hour.of(now_ms - back * 24 * HOUR_MS).day for back in range(count)]


@dataclass(frozen=True, slots=True)
class _Day:
    """The nodes of a day's hours, by their two digits; its cells already if all 24 have a flag."""

    records: Mapping[str, HourRecord]
    cells: tuple[Cell, ...] | None

    @classmethod
    def of(cls, records: Mapping[str, HourRecord]) -> "_Day":
        is_settled = len(records) == 24 and all(record.revision for record in records.values())
        cells = tuple(Cell.of(_flagged(records[hh]), records[hh]) for hh in sorted(records))
        return cls(records, cells if is_settled else None)


class Board:
    """For one session; may be used by several threads. It only reads."""

    def __init__(self, client: KazooClient, connections: Connections) -> None:
        self._client = client
        self._connections = connections
        self._hours = _KeptHours(client)
        self._storages: dict[str, Storage] = {}
        self._facts = lru_cache(maxsize=_KEPT_FLAGS)(self._read_facts)

    def calendars(self, streams: Sequence[Stream], days: Sequence[str], now_ms: int) -> list[Calendar]:
        """The days that have no node are those that nothing was written to: their hours are judged all the same."""
        found = read_many(self._client, {paths.positions(stream.name): None for stream in streams}, Positions)
        records = self._hours.read([(stream.name, day) for stream in streams for day in days])
        return [
            _calendar(stream, found.get(paths.positions(stream.name), Positions()), records, days, now_ms)
            for stream in streams
        ]

    def facts(self, stream: Stream, days: Sequence[str]) -> list[FlagFacts]:
        """Of every hour with a flag, in the order of time; a flag that retention has deleted is left out."""
        records = self._hours.read([(stream.name, day) for day in days])
        wanted = [
            (stream.root, Hour.parse(f"{day}T{hh}"), record.revision)
            for (_, day), found in records.items()
            for hh, record in found.records.items()
            if record.revision
        ]
        self._storages.setdefault(stream.root, open_storage(stream.root, self._connections))
        with ThreadPoolExecutor(_READERS) as readers:
            found = readers.map(lambda asked: self._facts(*asked), wanted)
            return sorted((facts for facts in found if facts), key=lambda facts: facts.hour)

    def offsets(self, stream: Stream) -> StreamOffsets:
        return view_offsets(self._client, stream.name, self._connections)

    def timelines(self, stream: Stream) -> dict[int, Timeline]:
        return StreamLedger(self._client, stream.name).timelines()

    def workers(self) -> tuple[list[WorkerView], list[LeaseView]]:
        return view_workers(self._client), view_leases(self._client)

    def revisions(self, stream: Stream, hour: Hour, newest: int) -> list[Flag]:
        """The flags of the hour, the newest first; at most the last twenty of them, without those that are gone."""
        storage = self._storages.setdefault(stream.root, open_storage(stream.root, self._connections))
        flags: list[Flag] = []
        for revision in range(newest, max(0, newest - _SHOWN_REVISIONS), -1):
            with suppress(NotFound):
                flags.append(read_hour_flag(storage, hour, revision))
        return flags

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


def unfinished_calendar(client: KazooClient, stream: Stream, connections: Connections, now_ms: int) -> Calendar:
    """The days, up to the present one, of which an hour has no flag yet or waits for the next."""
    ledger = StreamLedger(client, stream.name)
    days = unfinished_days(ledger, ledger.positions().value, Hour.of(now_ms).end_ms)
    (calendar,) = Board(client, connections).calendars([stream], days, now_ms)
    return calendar


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


class _KeptHours:
    """The hours' nodes, by stream and day. One watch a day stands for all of its nodes."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._kept: dict[_Key, _Day] = {}
        self._reading: dict[_Key, object] = {}
        self._watches: dict[_Key, Watch] = {}

    def read(self, keys: Sequence[_Key]) -> dict[_Key, _Day]:
        """Days without a node are left out."""
        with self._lock:
            if len(self._kept) > _KEPT_DAYS:
                self._kept.clear()
            found = {key: self._kept[key] for key in keys if key in self._kept}
        folders = {paths.hours(stream): None for stream in {key[0] for key in keys}}
        existing = children_of_many(self._client, folders)
        missing = [key for key in keys if key not in found and key[1] in existing.get(paths.hours(key[0]), ())]
        return found | self._fetch(missing)

    def _fetch(self, keys: Sequence[_Key]) -> dict[_Key, _Day]:
        """What changes between the reading and the keeping is not kept."""
        mark = object()
        with self._lock:
            self._reading.update(dict.fromkeys(keys, mark))
            watches = {paths.hours_of(*key): self._watches.setdefault(key, partial(self._forget, key)) for key in keys}
        names = children_of_many(self._client, watches)
        wanted = {f"{folder}/{hh}": watches[folder] for folder, found in names.items() for hh in found}
        nodes = read_many(self._client, wanted, HourRecord)
        records: dict[_Key, dict[str, HourRecord]] = {key: {} for key in keys}
        for path, record in nodes.items():
            _, _, stream, _, day, hh = path.split("/")
            records[stream, day][hh] = record
        found = {key: _Day.of(hours) for key, hours in records.items()}
        with self._lock:
            for key in keys:
                if self._reading.get(key) is mark:
                    self._kept[key] = found[key]
        return found

    def _forget(self, key: _Key, _event: object) -> None:
        with self._lock:
            self._kept.pop(key, None)
            self._reading.pop(key, None)
