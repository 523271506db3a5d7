"""The sweep: publish every hour and day that is ready, wait for none.

A flag is decided by compare-and-set on what was read for the decision (hour, timelines, positions), together with the
path and digest of its body; whoever finds the hour PUBLISHING finishes it, so that a crash leaves one flag and not two.
Looked at are the days that somebody opened by writing to them, and those that have no flag yet; a day is closed when
nothing of it waits. An hour or day that cannot be published keeps no other from it.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from tidemark import layout
from tidemark.errors import AlreadyExists, CommitFailed, NotFound, ServiceUnreachable, TidemarkError
from tidemark.failpoints import reach
from tidemark.index import read_index
from tidemark.ledger import paths
from tidemark.ledger.records import (
    Announcement,
    DayRecord,
    HourRecord,
    HourState,
    Positions,
    Publication,
)
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import Transaction, Versioned
from tidemark.manifest import manifests_of
from tidemark.names import DAY_MS, HOUR_MS, Hour, hours_of_day
from tidemark.publish.flag import (
    Flag,
    build_day_flag,
    build_hour_flag,
    dump_flag,
    read_hour_flag,
)
from tidemark.publish.rule import reasons_against
from tidemark.storage import Storage

_TRIES = 10
_OF_ONE = (TidemarkError, ValueError, LookupError, TypeError)
"""What a subject of its own may raise: also a file that holds something else than what was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A flag that this sweep wrote: of an hour (`2026-11-15T07`) or a day (`2026-11-15`)."""

    subject: str
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """`failed`: why, by hour or day."""

    published: tuple[Published, ...] = ()
    failed: Mapping[str, Exception] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    ledger: StreamLedger
    storage: Storage
    now_ms: Callable[[], int]

    def sweep(self) -> Sweep:
        """Go on past what fails. Raise at once only what would fail everything: a service that is away."""
        failed: dict[str, Exception] = {}
        published: list[Published | None] = []
        days = self.days_to_look_at()
        for hour in self._open_hours(days):
            with _kept_apart(str(hour), failed):
                published.append(self.publish_hour(hour))
        for day in days:
            with _kept_apart(day, failed):
                published.append(self.publish_day(day))
        reach("publish.before_closing")
        for day in self.ledger.open_days():
            with _kept_apart(day, failed):
                self._close_day(day)
        return Sweep(published=tuple(flag for flag in published if flag), failed=failed)

    def days_to_look_at(self) -> list[str]:
        """Up to where every shard is."""
        positions = self.ledger.positions().value
        return unfinished_days(self.ledger, positions, positions.lowest_watermark_ms)

    def publish_hour(self, hour: Hour) -> Published | None:
        """None when the hour is not ready, or when another sweep was faster.

        Who loses against a commit or a switch decides again on what they left: the next sweep may be an hour away.
        """
        for _ in range(_TRIES):
            node = self.ledger.hour(hour)
            if node.value.publishing is not None:
                if published := self._finish_hour(hour, node):
                    return published
            elif not _wants_flag(node.value) or not self._decide_hour(hour, node):
                return None
        return None

    def publish_day(self, day: str) -> Published | None:
        node = self.ledger.day(day)
        if node.value.state is HourState.EXPIRED:
            return None
        if node.value.publishing is None:
            hours = {hour: self.ledger.hour(hour).value for hour in hours_of_day(day)}
            revisions = tuple(record.revision for record in hours.values())
            if not all(revisions) or revisions == node.value.hours:
                return None
            flags = {hour: read_hour_flag(self.storage, hour, record.revision) for hour, record in hours.items()}
            revision = node.value.revision + 1
            flag = build_day_flag(
                stream=self.ledger.stream, day=day, revision=revision, hours=flags, published_ms=self.now_ms()
            )
            publication = replace(self._prepare(day, revision, dump_flag(flag)), hours=revisions)
            reach("publish.day_prepared")
            decided = replace(node.value, state=_publishing(node.value.state), publishing=publication)
            if not self._save_day(day, node, decided):
                return None
            reach("publish.day_decided")
            node = self.ledger.day(day)
        return self._finish_day(day, node)

    def _decide_hour(self, hour: Hour, node: Versioned[HourRecord]) -> bool:
        """False when the hour is not ready; True says nothing of whether the decision came in time."""
        version, positions = self.ledger.timelines_version(), self.ledger.positions()
        if reasons_against(hour, node.value, positions.value, self.now_ms()):
            return False
        body = dump_flag(self._hour_flag(hour, node.value, positions.value))
        prepared = self._prepare(str(hour), node.value.revision + 1, body)
        reach("publish.hour_prepared")
        publication = replace(prepared, shifts=node.value.unflagged)
        transaction = self.ledger.begin(f"publish {hour}")
        transaction.check(paths.timelines(self.ledger.stream), version=version.version)
        transaction.check(paths.positions(self.ledger.stream), version=positions.version)
        decided = replace(node.value, state=_publishing(node.value.state), publishing=publication)
        self.ledger.put_hour(transaction, hour, node, decided)
        if _succeeds(transaction):
            reach("publish.hour_decided")
        return True

    def _open_hours(self, days: Sequence[str]) -> list[Hour]:
        """Reached by every shard, and with something that no flag says yet."""
        positions = self.ledger.positions().value
        span = _span(positions, positions.lowest_watermark_ms)
        reached = [hour for day in days for hour in hours_of_day(day) if hour.start_ms in span]
        return [hour for hour in reached if positions.reaches(hour) and _wants_flag(self.ledger.hour(hour).value)]

    def _close_day(self, day: str) -> None:
        """Only in the state that was looked at: who writes to the day meanwhile finds it open, or opens it again."""
        node = self.ledger.day(day)
        hours = {hour: self.ledger.hour(hour) for hour in hours_of_day(day)}
        revisions = tuple(hour.value.revision for hour in hours.values())
        settled = node.value.publishing is None and not node.value.unannounced and node.value.hours == revisions
        if not settled or any(_has_work(hour.value) for hour in hours.values()):
            return
        transaction = self.ledger.begin(f"close {day}")
        closed = replace(node.value, empty=_empty_hours(node.value, [hour.value for hour in hours.values()]))
        transaction.put(paths.day(self.ledger.stream, day), closed, version=node.version)
        for hour, found in hours.items():
            transaction.check(paths.hour(self.ledger.stream, hour), version=found.version)
        transaction.delete(paths.open_day(self.ledger.stream, day))
        _succeeds(transaction)

    def _hour_flag(self, hour: Hour, record: HourRecord, positions: Positions) -> Flag:
        return build_hour_flag(
            stream=self.ledger.stream,
            hour=hour,
            record=record,
            positions=positions,
            added=manifests_of(self.storage, record.unflagged),
            index=read_index(self.storage, hour, record.archives),
            previous=read_hour_flag(self.storage, hour, record.revision) if record.revision else None,
            published_ms=self.now_ms(),
            timelines=self.ledger.timelines(),
        )

    def _prepare(self, subject: str, revision: int, body: bytes) -> Publication:
        digest = hashlib.sha256(body).hexdigest()
        path = f"{layout.work_of_flag(subject, revision)}/{digest}"
        with suppress(AlreadyExists):
            self.storage.create(path, body)
        return Publication(revision=revision, path=path, digest=digest)

    def _finish_hour(self, hour: Hour, node: Versioned[HourRecord]) -> Published | None:
        publication = node.value.publishing
        if publication is None:
            return None
        if not self._place(publication, str(hour), layout.hour_flag(hour, publication.revision)):
            self._save_hour(hour, node, _undecided(node.value))
            return None
        reach("publish.hour_placed")
        ready = replace(
            node.value,
            state=HourState.READY,
            revision=publication.revision,
            unflagged=node.value.unflagged_after(publication),
            publishing=None,
            unannounced=(*node.value.unannounced, self._announcement(publication)),
        )
        if not self._save_hour(hour, node, ready):
            return None
        reach("publish.hour_ready")
        return Published(subject=str(hour), revision=publication.revision)

    def _finish_day(self, day: str, node: Versioned[DayRecord]) -> Published | None:
        publication = node.value.publishing
        if publication is None:
            return None
        if not self._place(publication, day, layout.day_flag(day, publication.revision)):
            state = HourState.READY if node.value.revision else HourState.OPEN
            self._save_day(day, node, replace(node.value, state=state, publishing=None))
            return None
        reach("publish.day_placed")
        ready = replace(
            node.value,
            state=HourState.READY,
            revision=publication.revision,
            hours=publication.hours,
            publishing=None,
            unannounced=(*node.value.unannounced, self._announcement(publication)),
        )
        if not self._save_day(day, node, ready):
            return None
        reach("publish.day_ready")
        return Published(subject=day, revision=publication.revision)

    def _announcement(self, publication: Publication) -> Announcement:
        return Announcement(revision=publication.revision, published_ms=self.now_ms())

    def _save_hour(self, hour: Hour, node: Versioned[HourRecord], value: HourRecord) -> bool:
        transaction = self.ledger.begin(f"flag {hour}")
        self.ledger.put_hour(transaction, hour, node, value)
        return _succeeds(transaction)

    def _save_day(self, day: str, node: Versioned[DayRecord], value: DayRecord) -> bool:
        transaction = self.ledger.begin(f"flag {day}")
        self.ledger.put_day(transaction, day, node, value)
        return _succeeds(transaction)

    def _place(self, publication: Publication, subject: str, path: str) -> bool:
        """Rename the body to its final name; a flag that is there already must be this one.

        False when body and flag are both gone, and the decision with them: nobody can write either, because this body
        was made before it was decided on, and the next one has another name. In this order: whoever else renames the
        body leaves the flag for us to find.

        Bodies of those who died before they decided go now: after READY nobody would look for them.
        """
        try:
            self.storage.rename(publication.path, path)
        except (AlreadyExists, NotFound) as error:
            if isinstance(error, NotFound) and self.storage.status(path) is None:
                return False
            found = hashlib.sha256(self.storage.read(path)).hexdigest()
            if found != publication.digest:
                raise TidemarkError(
                    f"Cannot publish {path}: it holds digest {found}, wanted {publication.digest}"
                ) from error
        self.storage.delete(layout.work_of_flag(subject, publication.revision), recursive=True)
        return True


def unfinished_days(ledger: StreamLedger, positions: Positions, until_ms: int | None) -> list[str]:
    """Those with an hour that ends by then. Finished days, of which a stream has ever more, are left out: a day has a
    node once its 24 hours are ready, and what is written to it later opens it."""
    span = _span(positions, until_ms)
    reached = [Hour(start).day for start in range(span.start - span.start % DAY_MS, span.stop, DAY_MS)]
    return sorted({*reached} - {*ledger.days()} | {*ledger.open_days()})


def _span(positions: Positions, until_ms: int | None) -> range:
    """Times at which an hour may begin that ends by then; gaps between backfills lie in it, too."""
    first = positions.first_hour
    if until_ms is None or first is None:
        return range(0)
    start_ms = min([first.start_ms, *(backfill.from_ms for backfill in positions.backfills)])
    return range(start_ms - start_ms % HOUR_MS, until_ms - HOUR_MS + 1, HOUR_MS)


def _has_work(record: HourRecord) -> bool:
    """A file that was given up may be restored at any time: the archiver looks for it."""
    is_waited_for = any(gap.file for gap in record.gaps)
    return _wants_flag(record) or is_waited_for or bool(record.dirty or record.archiving or record.unannounced)


def _empty_hours(day: DayRecord, hours: Sequence[HourRecord]) -> tuple[int, ...] | None:
    if day.state is not HourState.READY or any(hour.gaps for hour in hours):
        return None
    return tuple(index for index, hour in enumerate(hours) if not hour.archives)


def _wants_flag(record: HourRecord) -> bool:
    if record.state is HourState.EXPIRED:
        return False
    return not record.revision or bool(record.unflagged) or record.publishing is not None


def _publishing(state: HourState) -> HourState:
    """An hour stays READY while its next revision is prepared."""
    return HourState.READY if state is HourState.READY else HourState.PUBLISHING


def _undecided(record: HourRecord) -> HourRecord:
    """As before the decision: it will be taken again, about what is there then."""
    state = HourState.READY if record.revision else HourState.ARCHIVED if record.archives else HourState.OPEN
    return replace(record, state=state, publishing=None, unflagged=tuple(dict.fromkeys(record.unflagged)))


@contextmanager
def _kept_apart(subject: str, failed: dict[str, Exception]) -> Iterator[None]:
    try:
        yield
    except ServiceUnreachable:
        raise
    except _OF_ONE as error:
        failed.setdefault(subject, error)


def _succeeds(transaction: Transaction) -> bool:
    try:
        transaction.commit()
    except CommitFailed:
        return False
    return True
