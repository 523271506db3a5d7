"""Restore a stream's ledger from storage alone: the newest manifest, what all of them touched, indexes and flags.

The head is written last and makes the rebuild valid: until then nothing is planned, because there are manifests and no
shift, and a rebuild that died is done again. Epochs go on from the clock, far above any that was counted, so that no
job of before can commit; what it had below `_tmp` is deleted first, so that its renames find nothing.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidemark import layout
from tidemark.config import Stream
from tidemark.consume.touch import hours_of, touch
from tidemark.drive.services import Services, now_ms, services
from tidemark.drive.shifts import KEPT
from tidemark.environment import Connections
from tidemark.errors import WrongUse
from tidemark.index import IndexRecord, is_held, read_index, read_segment
from tidemark.ledger import paths
from tidemark.ledger.lease import StreamLease, replace_lease
from tidemark.ledger.records import (
    ArchivePlan,
    DayRecord,
    Head,
    HourRecord,
    HourState,
    LeaseRecord,
    ShiftRecord,
    ShiftState,
    TimelinesVersion,
    parse,
)
from tidemark.ledger.zookeeper import ask, read
from tidemark.logs import logger
from tidemark.manifest import Manifest, ManifestFile, list_manifests, read_manifest
from tidemark.names import Hour, Task, hours_of_day
from tidemark.publish.announce import doubted
from tidemark.publish.flag import Flag, read_day_flag, read_hour_flag
from tidemark.storage import Storage

LEASE_WAIT_S = 60.0
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    manifests: int
    hours: int
    days: int
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Past:
    """What the manifests say, read in the order of their numbers."""

    last: Manifest
    shifts: Mapping[str, ShiftRecord]
    hours: Mapping[Hour, HourRecord]
    files: Mapping[Hour, Sequence[tuple[int, ManifestFile]]]
    accepted: Mapping[str, str]
    """Files without which an operator had their hour published, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _DayFolder:
    """What lies in the folder of a day, by its numbers."""

    day_revision: int = 0
    revisions: Mapping[Hour, int] = field(default_factory=dict)
    archives: Mapping[Hour, int] = field(default_factory=dict)


def rebuild_stream(stream: Stream, connections: Connections, task: Task) -> Rebuilt:
    """Raise WrongUse when ZooKeeper knows the stream, or storage nothing of it."""
    with services(stream, connections, task) as around:
        known = around.ledger.head().value.number
        if known:
            raise WrongUse(f"Cannot rebuild {stream.name}: ZooKeeper knows it, its last shift is number {known}")
        storage = around.storage()
        _jump_epoch(around)
        with around.lease().take(wait_s=LEASE_WAIT_S) as lease:
            storage.delete(layout.WORK, recursive=True)
            past = _read_past(stream, storage)
            return _Rebuilder(around=around, storage=storage, lease=lease).write(past)


def _jump_epoch(around: Services) -> None:
    node = read(around.client, paths.lease(around.stream.name), LeaseRecord)
    assert node is not None, "the stream's nodes were made"
    jumped = LeaseRecord(epoch=max(node.value.epoch + 1, now_ms() // 1000))
    replace_lease(around.client, around.stream.name, node, jumped, f"jump to epoch {jumped.epoch}")


def _read_past(stream: Stream, storage: Storage) -> _Past:
    shifts: dict[str, ShiftRecord] = {}
    hours: dict[Hour, HourRecord] = {}
    files: dict[Hour, list[tuple[int, ManifestFile]]] = {}
    accepted: dict[str, str] = {}
    found = list_manifests(storage)
    if not found:
        raise WrongUse(f"Cannot rebuild {stream.name}: {stream.root} has no manifest")
    for number, path in sorted(found.items()):
        manifest = read_manifest(storage, path)
        if manifest.stream != stream.name:
            raise WrongUse(
                f"Cannot rebuild {stream.name}: {path} in {stream.root} is of the stream {manifest.stream}; "
                "wanted the stream's own root"
            )
        shift = manifest.shift
        shifts[shift.id] = ShiftRecord(number=number, state=ShiftState.COMMITTED, cut=shift.is_cut, manifest=path)
        for hour in hours_of(manifest):
            hours[hour] = touch(hours.get(hour, HourRecord()), hour, manifest)
        for file in manifest.files:
            if file.hour:
                files.setdefault(Hour.parse(file.hour), []).append((number, file))
        if shift.acceptance:
            accepted = dict.fromkeys(shift.acceptance.files, shift.acceptance.reason) | accepted
    return _Past(last=manifest, shifts=shifts, hours=hours, files=files, accepted=accepted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rebuilder:
    around: Services
    storage: Storage
    lease: StreamLease

    def write(self, past: _Past) -> Rebuilt:
        name = self.around.stream.name
        hours, days = 0, 0
        expired = {status.path for status in self.storage.list(layout.EXPIRED)}
        for day, folder in self._days(past):
            if layout.expired(day) in expired:
                self._put_expired(day)
                continue
            for hour in hours_of_day(day):
                record = self._hour(hour, past, folder)
                if record != HourRecord():
                    self._put_hour(hour, record)
                    hours += 1
            if folder.day_revision:
                self._put_day(day, self._day(day, folder.day_revision))
                days += 1
        newest = past.last.shift.number
        for shift, shift_record in past.shifts.items():
            if shift_record.number > newest - KEPT:
                self._put(paths.shift(name, shift), shift_record)
        for order, timeline in past.last.timelines.items():
            self._put(paths.timeline(name, int(order)), timeline)
        self._put(paths.timelines(name), TimelinesVersion(version=past.last.shift.timelines_version))
        self._put(paths.positions(name), past.last.positions)
        self._put(paths.head(name), Head(number=newest, open=None, epoch=self.lease.epoch))
        done = Rebuilt(manifests=len(past.shifts), hours=hours, days=days, last=past.last.shift.id)
        logger(__name__, stream=name).info("rebuilt", extra={"last": done.last, "manifests": done.manifests})
        return done

    def _days(self, past: _Past) -> Iterator[tuple[str, _DayFolder]]:
        """Every day that a manifest touches or that has a folder; a day may have flags and no line at all."""
        folders = {status.path for status in self.storage.list("") if _DAY.fullmatch(status.path)}
        for day in sorted(folders | {hour.day for hour in past.hours}):
            yield day, self._folder(day)

    def _folder(self, day: str) -> _DayFolder:
        revisions = {hour: self._revision(layout.hour_folder(hour)) for hour in hours_of_day(day)}
        archives: dict[Hour, int] = {}
        for status in self.storage.list(layout.index_folder(day)):
            hour, archive = layout.archive_of_segment(status.path)
            archives[hour] = max(archive, archives.get(hour, 0))
        return _DayFolder(day_revision=self._revision(day), revisions=revisions, archives=archives)

    def _revision(self, folder: str) -> int:
        found = (layout.revision_of_flag(status.path) for status in self.storage.list(folder))
        return max((revision for revision in found if revision), default=0)

    def _hour(self, hour: Hour, past: _Past, folder: _DayFolder) -> HourRecord:
        record = past.hours.get(hour, HourRecord())
        revision, archives = folder.revisions[hour], folder.archives.get(hour, 0)
        pieces = read_index(self.storage, hour, archives)
        sizes = {status.path: status.size for status in self.storage.list(layout.hour_folder(hour))}
        there = [piece for piece in pieces if sizes.get(piece.destFile) == piece.destBytes]
        files = past.files.get(hour, ())
        archiving = self._unfinished(hour, archives, pieces, there, files)
        if archiving:
            there = [piece for piece in there if piece.ArchiveTimestamp != archiving.timestamp_ms]
            archives -= 1
        given_up = self._given_up(hour, files, there, past.accepted)
        archived = _archived(files, there, given_up)
        flags = [read_hour_flag(self.storage, hour, number) for number in range(1, revision + 1)]
        flagged = _flagged(flags[-1], files, there, given_up) if flags else set()
        return replace(
            record,
            gaps=(
                *record.gaps,
                *(replace(file.as_gap(hour), accepted=past.accepted[path]) for path, file in given_up.items()),
            ),
            state=HourState.READY if revision else HourState.ARCHIVED if archives else HourState.OPEN,
            revision=revision,
            dirty=tuple(number for number in record.dirty if number not in archived),
            unflagged=tuple(number for number in record.dirty if number in archived - flagged),
            archives=archives,
            archiving=archiving,
            unannounced=doubted(flags, now_ms()),
        )

    def _given_up(
        self,
        hour: Hour,
        files: Sequence[tuple[int, ManifestFile]],
        pieces: Sequence[IndexRecord],
        accepted: Mapping[str, str],
    ) -> dict[str, ManifestFile]:
        """Those of the accepted files that are still gone. Others that are gone the next archive finds."""
        gone = {
            file.path: file for _, file in files if file.path in accepted and not is_held(file.path, file.lines, pieces)
        }
        there = {status.path for status in self.storage.list(layout.incoming_folder(hour))} if gone else set()
        return {path: file for path, file in gone.items() if path not in there}

    def _unfinished(
        self,
        hour: Hour,
        archive: int,
        pieces: Sequence[IndexRecord],
        there: Sequence[IndexRecord],
        files: Sequence[tuple[int, ManifestFile]],
    ) -> ArchivePlan | None:
        """The last archive, when it has its index but not all of its targets: it is carried out as it was planned."""
        last = [piece for piece in pieces if piece.ArchiveTimestamp == pieces[-1].ArchiveTimestamp]
        if all(piece in there for piece in last):
            return None
        sources = {piece.srcFile for piece in last}
        segment = read_segment(self.storage, hour, archive)
        return ArchivePlan(
            number=archive,
            shifts=tuple(sorted({number for number, file in files if file.path in sources})),
            timestamp_ms=last[0].ArchiveTimestamp,
            voids=tuple(sorted(void.void for void in segment.voids)) if segment else (),
        )

    def _day(self, day: str, revision: int) -> DayRecord:
        flags = [read_day_flag(self.storage, day, number) for number in range(1, revision + 1)]
        hours = tuple(flags[-1]["hours"][str(hour)]["revision"] for hour in hours_of_day(day))
        return DayRecord(state=HourState.READY, revision=revision, hours=hours, unannounced=doubted(flags, now_ms()))

    def _put_hour(self, hour: Hour, record: HourRecord) -> None:
        """Names of workers begin anew: an archiver of before must not find its own epoch."""
        fenced = replace(record, lease=LeaseRecord(epoch=self.lease.epoch))
        transaction = self.around.ledger.begin(f"rebuild {hour}")
        self.lease.check_in(transaction)
        self.around.ledger.put_hour(transaction, hour, self.around.ledger.hour(hour), fenced)
        transaction.commit()

    def _put_day(self, day: str, record: DayRecord) -> None:
        transaction = self.around.ledger.begin(f"rebuild {day}")
        self.lease.check_in(transaction)
        self.around.ledger.put_day(transaction, day, self.around.ledger.day(day), record)
        transaction.commit()

    def _put_expired(self, day: str) -> None:
        """Retention may have died on the way: the same token is gone, but the day's files are no longer anybody's."""
        record = parse(DayRecord, self.storage.read(layout.expired(day)))
        revisions = record.hours or (0,) * 24
        for hour, revision in zip(hours_of_day(day), revisions, strict=True):
            self._put_hour(hour, HourRecord(state=HourState.EXPIRED, revision=revision))
        self._put_day(day, record)

    def _put(self, path: str, record: object) -> None:
        stat = ask(self.around.client.exists_async, path)
        transaction = self.around.ledger.begin(f"rebuild {path}")
        self.lease.check_in(transaction)
        transaction.put(path, record, version=stat.version if stat else -1)
        transaction.commit()


def _archived(
    files: Sequence[tuple[int, ManifestFile]], pieces: Sequence[IndexRecord], given_up: Collection[str]
) -> set[int]:
    """The shifts all of whose lines are in targets that are there, but for files that were given up."""
    lines: dict[str, int] = {}
    for piece in pieces:
        lines[piece.srcFile] = lines.get(piece.srcFile, 0) + piece.lines
    waiting = {number for number, file in files if lines.get(file.path) != file.lines and file.path not in given_up}
    return {number for number, _ in files} - waiting


def _flagged(
    flag: Flag, files: Sequence[tuple[int, ManifestFile]], pieces: Sequence[IndexRecord], given_up: Collection[str]
) -> set[int]:
    """The shifts all of whose lines are in files that the flag names, but for those that it says are given up."""
    named = {file["path"] for file in flag["files"]}
    missing = {gap["file"] for gap in flag["gaps"] if "file" in gap}.intersection(given_up)
    return _archived(files, [piece for piece in pieces if piece.destFile in named], missing)
