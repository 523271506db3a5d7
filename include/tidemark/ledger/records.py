"""What the ledger's nodes hold, as frozen values; `dump` and `parse` are their JSON form.

Lists are indexed by partition and kept by timeline (`0001`), so that 5,000 partitions stay below 1 MiB.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter

from tidemark.names import HOUR_MS, Hour, Shard

FORMAT = 1

Record = TypeVar("Record")
# `try` in the nodes, which no Python name can be.
Attempt = Annotated[int, Field(alias="try")]


_adapters: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def dump(record: object) -> bytes:
    return _adapter(type(record)).dump_json(record, by_alias=True)


def parse(kind: type[Record], data: bytes) -> Record:
    record: Record = _adapter(kind).validate_json(data)
    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    format: int = FORMAT
    queues: tuple[str, ...]
    task: str
    attempt: Attempt
    versions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """`losses`, of a stream's lease: how often it was taken from a holder that had not given it back."""

    format: int = FORMAT
    owner: str | None = None
    task: str = ""
    attempt: Attempt = 0
    epoch: int = 0
    count: int = 0
    losses: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    format: int = FORMAT
    number: int = 0
    open: str | None = None
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinesVersion:
    format: int = FORMAT
    version: int = 0


class Parents(StrEnum):
    """Of a shard whose timeline came by a switch."""

    SAME = "same"
    """The same partition of the timeline before: both had as many."""
    ALL = "all"
    """Every partition of the timeline before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Closed once it has `ends`, by partition: they grow with a topic that goes on growing, and with them `latest`, the
    last offsets, -1 where there never was a record. `snapshot` keeps the ends that the switch found.

    `partitions`: those that it began with; partitions that were added later have no parents. `retired_ms`: from then on
    no plan asks for it, and its shards have no positions.
    """

    format: int = FORMAT
    cluster: str
    topic: str
    topic_id: str
    switched_ms: int
    partitions: int = 0
    parents: Parents = Parents.SAME
    latest: tuple[int, ...] | None = None
    ends: tuple[int, ...] | None = None
    snapshot: tuple[int, ...] | None = None
    retired_ms: int | None = None

    def ending(self, ends: Iterable[int]) -> "Timeline":
        """Closed at these ends, or grown to them."""
        found = tuple(ends)
        snapshot = found if self.snapshot is None else self.snapshot
        return replace(self, ends=found, latest=tuple(end - 1 for end in found), snapshot=snapshot)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Offsets [start, end) of a shard that will never be read, and what time they may have held.

    It touches the hours from the shard's watermark when it was recorded to the time at which it was found (`until_ms`;
    None only in old records), and holds each of them until an operator has `accepted` it there, with his reason. With
    `file` it is what that file of one hour held, which the archiver found damaged or gone: a rerun of its shift, too,
    ends it.

    In an hour it names the number of the `shift` that recorded it, whose manifest lists it; a row that stands for
    `more` gaps than this one, of any shard, names the last of their shifts.
    """

    shard: str
    start: int
    end: int
    since_ms: int
    until_ms: int | None = None
    accepted: str | None = None
    file: str | None = None
    shift: int | None = None
    more: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldEnd:
    """The end of a shard's log, asked after `until_ms` + grace, below which a transaction was open.

    All that had arrived by `until_ms` lies below it: once that much is committed, the watermark is proven.
    """

    shard: str
    end: int
    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPosition:
    """Committed ranges and gaps tile [start, next); all that had arrived by the watermark lies below next."""

    start: int
    next: int
    watermark_ms: int
    digest: str | None
    completed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _PositionColumns:
    start: tuple[int, ...]
    next: tuple[int, ...]
    watermark_ms: tuple[int, ...]
    digest: tuple[str | None, ...]
    completed: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """Offsets below the start of the shards of timeline 1, by partition, that were read for the times [from, to).

    `append_time`: these are the broker's own times, so that no record behind the offsets belongs to the hours.
    """

    from_ms: int
    to_ms: int
    append_time: bool
    begin: tuple[int, ...]
    end: tuple[int, ...]

    def covers(self, hour: Hour) -> bool:
        return self.from_ms <= hour.start_ms and hour.end_ms <= self.to_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """`start_ms` is the stream's start, `first_ms` the begin of the earliest interval that was planned for it, a
    backfill before that aside: None until the first plan. `past_ms`: lines that are older went to `_skewed` when the
    stream's beginning was read. `held` is one at the most for each shard, `backfills` are in the order of time, those
    that meet joined into one. Only old records have `gaps`, which no watermark had passed."""

    format: int = FORMAT
    start_ms: int | None = None
    first_ms: int | None = None
    past_ms: int | None = None
    timelines: Mapping[str, _PositionColumns] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()
    held: tuple[HeldEnd, ...] = ()
    backfills: tuple[Backfill, ...] = ()

    def with_shards(self, shards: Mapping[Shard, ShardPosition]) -> "Positions":
        timelines: dict[str, _PositionColumns] = {}
        for timeline in sorted({shard.timeline for shard in shards}):
            rows = [shards[shard] for shard in sorted(shards) if shard.timeline == timeline]
            timelines[f"{timeline:04d}"] = _PositionColumns(
                start=tuple(row.start for row in rows),
                next=tuple(row.next for row in rows),
                watermark_ms=tuple(row.watermark_ms for row in rows),
                digest=tuple(row.digest for row in rows),
                completed=tuple(row.completed for row in rows),
            )
        return replace(self, timelines=timelines)

    @property
    def shards(self) -> dict[Shard, ShardPosition]:
        return dict(self._rows())

    def _rows(self) -> Iterator[tuple[Shard, ShardPosition]]:
        for timeline, columns in self.timelines.items():
            for partition in range(len(columns.next)):
                yield (
                    Shard(int(timeline), partition),
                    ShardPosition(
                        start=columns.start[partition],
                        next=columns.next[partition],
                        watermark_ms=columns.watermark_ms[partition],
                        digest=columns.digest[partition],
                        completed=columns.completed[partition],
                    ),
                )

    @property
    def lowest_watermark_ms(self) -> int | None:
        return min((mark for _, _, mark in self._open_watermarks()), default=None)

    def behind(self, time_ms: int) -> dict[Shard, ShardPosition]:
        """The shards with a watermark before the time; asked for many hours, so that it makes no row for the others."""
        lagging = [Shard(int(timeline), number) for timeline, number, mark in self._open_watermarks() if mark < time_ms]
        shards = self.shards if lagging else {}
        return {shard: shards[shard] for shard in sorted(lagging)}

    def _open_watermarks(self) -> Iterator[tuple[str, int, int]]:
        """Timeline, partition and watermark of every shard that is not completed."""
        for timeline, columns in self.timelines.items():
            for partition, (mark, completed) in enumerate(zip(columns.watermark_ms, columns.completed, strict=True)):
                if not completed:
                    yield timeline, partition, mark

    @property
    def start_hour(self) -> Hour | None:
        """The first whole hour after the stream's start: earlier ones are never ready unless backfilled."""
        return None if self.start_ms is None else _next_hour(self.start_ms)

    @property
    def first_hour(self) -> Hour | None:
        """From here on nothing is out of reach: backfills that reach up to the stream's start move it back."""
        reached = self.first_ms
        for backfill in reversed(self.backfills):
            if backfill.to_ms == reached:
                reached = backfill.from_ms
        return self.start_hour if reached is None or reached == self.first_ms else _next_hour(reached)

    def reaches(self, hour: Hour) -> bool:
        """Whether all that may hold lines of the hour lies above the shards' starts, or was backfilled."""
        first = self.first_hour
        return (first is not None and hour >= first) or any(
            backfill.append_time and backfill.covers(hour) for backfill in self.backfills
        )


def _next_hour(time_ms: int) -> Hour:
    return Hour(-(-time_ms // HOUR_MS) * HOUR_MS)


class Proof(StrEnum):
    """Why everything that had arrived by the interval's end is in the range, or why that is not proven."""

    END_OFFSET = "end-offset"
    """The broker's end offset, asked after interval end + grace, is the range's end."""
    UNSTABLE = "unstable"
    """No proof: a transaction was open below the broker's end, the range ends at the last stable offset."""
    CUT = "cut"
    """No proof: the range was cut short (`max_records`); a further bite follows."""
    RECORD_TIME = "record-time"
    """Of a backfill: the offsets between two record times, below the shard's start; says nothing of the watermark."""
    OPERATOR = "operator"
    """No proof: an operator moved a shard of the stream."""
    WAITING = "waiting"
    """No proof, nothing read: a parent of the shard is not completed, and this shift does not complete it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftRange:
    """Half-open offsets of one shard, cut into `splits`: [start, points[0]), [points[0], points[1]), …, end).

    [lost_from, start) is a gap: records that were to be read and that Kafka no longer has. Mostly empty.
    `completes`: its timeline was closed before it was planned, and the range reaches the broker's end.
    `held_end`: the broker's end, which an open transaction keeps the range from.
    """

    lost_from: int
    start: int
    end: int
    points: tuple[int, ...] = ()
    proof: Proof
    completes: bool = False
    held_end: int | None = None

    @property
    def splits(self) -> tuple[tuple[int, int], ...]:
        edges = (self.start, *self.points, self.end)
        return tuple((low, high) for low, high in pairwise(edges) if low < high)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RangeColumns:
    start: tuple[int, ...]
    end: tuple[int, ...]
    points: Mapping[int, tuple[int, ...]]
    unproven: Mapping[int, Proof]
    lost_from: Mapping[int, int]
    closed: bool = False
    """A range that is proven completes its shard."""
    held_end: Mapping[int, int] = field(default_factory=dict)


class ShiftState(StrEnum):
    PLANNED = "PLANNED"
    PENDING = "PENDING"
    COMMITTED = "COMMITTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Lines with a time in [past_ms, future_ms) belong to their hour, others are skewed."""

    past_ms: int
    future_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ByRecordTime:
    """What makes a shift a backfill: its ranges reach up to the record time `to_ms`, the last one's to the shards'
    starts. `lost`, by partition, is what Kafka no longer had, with the times that it may have held; old records have
    it as `gaps`."""

    to_ms: int
    append_time: bool
    lost: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    lost_since_ms: int = 0
    lost_until_ms: int = 0
    gaps: tuple[Gap, ...] = ()

    @property
    def all_gaps(self) -> tuple[Gap, ...]:
        since_ms, until_ms = self.lost_since_ms, self.lost_until_ms
        return (
            *self.gaps,
            *(
                Gap(shard=str(Shard(1, partition)), start=start, end=end, since_ms=since_ms, until_ms=until_ms)
                for partition, (start, end) in self.lost.items()
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What makes a shift an operator's act: it reads nothing, moves one shard forward, and what it leaves is a gap.

    `digest` is of the record before the new position, None where there is none.
    """

    shard: str
    digest: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What makes a shift an operator's act: it reads and moves nothing, the gaps of one hour hold it no longer.

    `files`: those gaps that are a file's, which no manifest tells of.
    """

    hour: str
    reason: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """What makes a shift an operator's act: it reads and moves nothing, the stream goes on with a further timeline.

    What it changed is in the manifest's timelines and positions.
    """

    timeline: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """What makes a shift an operator's act: it reads nothing, and no plan asks for the timeline any more.

    `abandoned`: its shards were not completed, and what they may have held is a gap.
    """

    timeline: int
    abandoned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """One run's work, frozen before anything is read: files, names and bytes follow from it alone.

    `asked_ms`, where something is lost: when Kafka had told all of its offsets, by the clock that is ahead.
    """

    id: str
    number: int
    start_ms: int
    end_ms: int
    planned_ms: int
    timelines_version: int
    window: Window
    timestamp: str
    compression: str
    ranges: Mapping[str, _RangeColumns]
    by_record_time: ByRecordTime | None = None
    move: Move | None = None
    acceptance: Acceptance | None = None
    switch: Switch | None = None
    retirement: Retirement | None = None
    asked_ms: int | None = None

    @property
    def lost_by_ms(self) -> int:
        """By then everything had arrived that the shift finds lost."""
        return self.planned_ms if self.asked_ms is None else self.asked_ms

    @property
    def is_act(self) -> bool:
        """Whether it is an operator's: it reads nothing."""
        return any((self.move, self.acceptance, self.switch, self.retirement))

    @property
    def is_cut(self) -> bool:
        return any(proof is Proof.CUT for columns in self.ranges.values() for proof in columns.unproven.values())

    @staticmethod
    def columns(ranges: Mapping[Shard, ShiftRange]) -> dict[str, _RangeColumns]:
        columns: dict[str, _RangeColumns] = {}
        for timeline in sorted({shard.timeline for shard in ranges}):
            rows = {shard.partition: ranges[shard] for shard in sorted(ranges) if shard.timeline == timeline}
            columns[f"{timeline:04d}"] = _RangeColumns(
                start=tuple(row.start for row in rows.values()),
                end=tuple(row.end for row in rows.values()),
                points={partition: row.points for partition, row in rows.items() if row.points},
                unproven={p: row.proof for p, row in rows.items() if row.proof is not Proof.END_OFFSET},
                lost_from={p: row.lost_from for p, row in rows.items() if row.lost_from < row.start},
                closed=any(row.completes for row in rows.values()),
                held_end={p: row.held_end for p, row in rows.items() if row.held_end is not None},
            )
        return columns

    @property
    def shards(self) -> dict[Shard, ShiftRange]:
        rows: dict[Shard, ShiftRange] = {}
        for timeline, columns in self.ranges.items():
            for partition, (start, end) in enumerate(zip(columns.start, columns.end, strict=True)):
                proof = columns.unproven.get(partition, Proof.END_OFFSET)
                rows[Shard(int(timeline), partition)] = ShiftRange(
                    lost_from=columns.lost_from.get(partition, start),
                    start=start,
                    end=end,
                    points=columns.points.get(partition, ()),
                    proof=proof,
                    completes=columns.closed and proof is Proof.END_OFFSET,
                    held_end=columns.held_end.get(partition),
                )
        return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftRecord:
    """The shift's node. Once COMMITTED it names the manifest, which holds the shift, and no longer the shift.

    `cut`: the interval's work goes on with a further bite.
    """

    format: int = FORMAT
    number: int
    state: ShiftState
    cut: bool = False
    shift: Shift | None = None
    manifest: str | None = None
    manifest_digest: str | None = None


class HourState(StrEnum):
    OPEN = "OPEN"
    ARCHIVED = "ARCHIVED"
    PUBLISHING = "PUBLISHING"
    READY = "READY"
    EXPIRED = "EXPIRED"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePlan:
    """Frozen before the first byte is copied: a rerun joins the same sources under the same names.

    `voids` are targets of earlier archives that are gone or damaged: what they held is archived again. A plan whose
    number the hour has `archives` for already is visible, and only its sources are still to be deleted.
    """

    number: int
    shifts: tuple[int, ...]
    timestamp_ms: int
    target_bytes: int = 256_000_000
    voids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A flag that is decided: its body lies at `path`. `shifts` are what an hour's flag adds, `hours` a day's."""

    revision: int
    path: str
    digest: str
    shifts: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A flag of which it is not certain that Airflow has its event; published at this time or later.

    Until it is `handed` over it is certain that Airflow does not have it.
    """

    revision: int
    published_ms: int
    handed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HourRecord:
    """`dirty`: shifts whose lines are not archived; `unflagged`: archived, but in no flag yet. One that is archived
    again while the flag that is decided names it is in `unflagged` twice: that flag does not have the new files."""

    format: int = FORMAT
    state: HourState = HourState.OPEN
    revision: int = 0
    dirty: tuple[int, ...] = ()
    unflagged: tuple[int, ...] = ()
    gaps: tuple[Gap, ...] = ()
    archives: int = 0
    archiving: ArchivePlan | None = None
    publishing: Publication | None = None
    unannounced: tuple[Announcement, ...] = ()
    lease: LeaseRecord | None = None

    def unflagged_with(self, archived: Iterable[int]) -> tuple[int, ...]:
        decided = self.publishing.shifts if self.publishing else ()
        return (*self.unflagged, *(n for n in archived if self.unflagged.count(n) <= decided.count(n)))

    def unflagged_after(self, publication: Publication) -> tuple[int, ...]:
        left = list(self.unflagged)
        for number in publication.shifts:
            if number in left:
                left.remove(number)
        return tuple(left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The days that a dry run listed: what its token removes, and nothing else."""

    format: int = FORMAT
    token: str
    days: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRecord:
    """`hours`: the revisions of the 24 hours that the day's flag of `revision` was written for.

    `empty`: those of the 24 that hold no line, and with `hours` all there is to say of a day that is ready, has no gap
    and is closed. None, or the day is open: its hours' nodes say more.
    """

    format: int = FORMAT
    state: HourState = HourState.OPEN
    revision: int = 0
    hours: tuple[int, ...] = ()
    empty: tuple[int, ...] | None = None
    publishing: Publication | None = None
    unannounced: tuple[Announcement, ...] = ()
