"""Commit a shift: files into place, manifest, one transaction; and finish what a dead driver left.

The order is the guarantee. Until the transaction no reader sees the files, because no committed manifest names them;
from the moment the manifest has its final name the shift only rolls forward.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tidemark import __version__, layout
from tidemark.consume.advance import advance
from tidemark.consume.results import SplitResult, WrittenFile
from tidemark.consume.touch import hours_changed, hours_only_held, touch
from tidemark.errors import AlreadyExists, CommitFailed, CommitStateUnknown, DataLoss, NotFound, WrongUse
from tidemark.failpoints import reach
from tidemark.ledger import paths
from tidemark.ledger.lease import StreamLease
from tidemark.ledger.records import Shift, ShiftRange, ShiftRecord, ShiftState, dump, parse
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import Transaction, Versioned
from tidemark.lineage import Cursor, cursor_of
from tidemark.manifest import (
    FileKind,
    Manifest,
    ManifestFile,
    ManifestShard,
    dump_blocks,
    manifests_named,
    read_manifest,
)
from tidemark.names import Hour, Shard
from tidemark.storage import Storage, digest_of
from tidemark.work import discard_epochs, epochs_below

HOURS_AT_ONCE = 50
"""So many hours that only get a gap are one transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """`source` is relative to the epoch's folder, which a successor renames to its own."""

    source: str
    target: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    manifest_digest: str
    files: tuple[Move, ...]


def build_manifest(stream: str, shift: Shift, results: Sequence[SplitResult], ledger: StreamLedger) -> Manifest:
    """Raise DataLoss unless every record that was read is accounted for."""
    before, ranges, timelines = ledger.positions().value, shift.shards, ledger.timelines()
    by_shard: dict[Shard, list[SplitResult]] = {shard: [] for shard in ranges}
    for result in sorted(results, key=lambda found: (Shard.parse(found.shard), found.index)):
        by_shard[Shard.parse(result.shard)].append(result)
    shards = {
        str(shard): account(
            f"{stream}/{shard} of {shift.id}",
            ranges[shard],
            cursor_of(shard, ranges[shard].end - 1, timelines),
            found,
        )
        for shard, found in by_shard.items()
    }
    since = before.first_hour if shift.by_record_time else None
    watermarks = {shard: position.watermark_ms for shard, position in before.shards.items()}
    digests = {shard: _digest_before(ranges[shard].end, found) for shard, found in by_shard.items()}
    advanced = advance(before, shift, digests)
    return Manifest(
        writer=f"tidemark {__version__}",
        stream=stream,
        shift=shift,
        timelines={f"{order:04d}": timeline for order, timeline in timelines.items()},
        positions=advanced.positions,
        gaps=advanced.gaps,
        shards=shards,
        files=tuple(
            _entry(Shard.parse(result.shard), file, _is_late(file, watermarks[Shard.parse(result.shard)], since))
            for found in by_shard.values()
            for result in found
            for file in result.files
        ),
    )


def account(subject: str, found: ShiftRange, cursor: Cursor, results: Sequence[SplitResult]) -> ManifestShard:
    """What became of the range's offsets; results in the order of its splits. Raise DataLoss where something misses."""
    row = ManifestShard(
        start=found.start,
        end=found.end,
        records=sum(result.records for result in results),
        lines=sum(result.lines(FileKind.LINES) for result in results),
        skewed=sum(result.lines(FileKind.SKEWED) for result in results),
        bad=sum(result.lines(FileKind.BAD) for result in results),
        tombstones=sum(result.tombstones for result in results),
        holes=found.end - found.start - sum(result.records for result in results),
        cursor=cursor,
    )
    written = row.lines + row.skewed + row.bad + row.tombstones
    if [result.index for result in results] != list(range(len(found.splits))):
        raise DataLoss(
            f"Cannot commit {subject}: the splits {[result.index for result in results]} were read, "
            f"wanted each of {len(found.splits)} once"
        )
    if written != row.records or row.holes < 0:
        raise DataLoss(
            f"Cannot commit {subject}: {row.records} records were read from "
            f"[{row.start}, {row.end}), {written} accounted for ({row})"
        )
    return row


def _digest_before(end: int, results: Sequence[SplitResult]) -> str | None:
    """None when a marker or a hole stands before `end`: there is no record to compare with later."""
    last = max(results, key=lambda result: result.last_offset, default=None)
    return last.last_digest if last and last.last_offset == end - 1 else None


def _is_late(file: WrittenFile, watermark_ms: int, since: Hour | None) -> bool:
    """Behind the watermark; what a backfill brings for the hours before `since`, the stream's own, is what they are."""
    if file.hour is None:
        return False
    hour = Hour.parse(file.hour)
    return hour.end_ms <= watermark_ms and (since is None or hour >= since)


def _entry(shard: Shard, file: WrittenFile, is_late: bool) -> ManifestFile:
    return ManifestFile(
        path=file.path,
        kind=file.kind,
        hour=file.hour,
        shard=str(shard),
        lines=file.lines,
        late=file.lines if is_late else 0,
        bytes=file.bytes,
        digest=file.digest,
        first_offset=file.first_offset,
        last_offset=file.last_offset,
        min_ms=file.min_ms,
        max_ms=file.max_ms,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    stream: str
    shift: Shift
    ledger: StreamLedger
    storage: Storage
    lease: StreamLease

    @property
    def folder(self) -> str:
        """Where this epoch's work lies; nobody else writes below it."""
        return f"{layout.work_of_shift(self.shift.id)}/{self.lease.epoch}"

    def commit(self, manifest: Manifest, results: Sequence[SplitResult]) -> None:
        data = dump(manifest)
        files = [file for result in results for file in result.files]
        moves = Moves(
            manifest_digest=hashlib.sha256(data).hexdigest(),
            files=tuple(
                Move(
                    source=file.temporary.removeprefix(f"{self.folder}/"),
                    target=file.path,
                    bytes=file.bytes,
                )
                for file in files
            ),
        )
        blocks = dump_blocks((file.path, block) for file in files for block in file.blocks)
        self.lease.confirm()
        reach("commit.before_manifest")
        self.storage.create(f"{self.folder}/blocks", blocks)
        self.storage.create(f"{self.folder}/manifest", data)
        reach("commit.after_manifest")
        self.storage.create(f"{self.folder}/moves", dump(moves))
        reach("commit.before_pending")
        self._mark_pending(moves.manifest_digest)
        reach("commit.after_pending")
        self._finish(manifest, moves)

    def recover(self) -> bool:
        """Finish what an earlier epoch left PENDING. False: its files are not all there, the shift is PLANNED again."""
        reach("recover.before_adopt")
        self._adopt_folder()
        reach("recover.after_adopt")
        final = layout.manifest(self.shift.number, self.shift.id)
        data = self.storage.read(final) if self.storage.status(final) else b""
        if self._is_marked(data):
            self._commit_ledger(parse(Manifest, data), final)
            return True
        moves = self._read_moves()
        if moves is None or not all(self._is_in_reach(move) for move in moves.files):
            reach("recover.before_rollback")
            self._mark(ShiftState.PLANNED, None)
            reach("recover.after_rollback")
            return False
        self._finish(parse(Manifest, self.storage.read(f"{self.folder}/manifest")), moves)
        return True

    def discard_work(self) -> None:
        """What lies below `_tmp` for a shift that is not PENDING, or whose manifest has its place, is nobody's."""
        discard_epochs(self.storage, layout.work_of_shift(self.shift.id), up_to=self.lease.epoch)

    def _adopt_folder(self) -> None:
        """Rename what an earlier epoch wrote, so that a zombie's own renames find nothing."""
        for path in epochs_below(self.storage, layout.work_of_shift(self.shift.id), up_to=self.lease.epoch - 1):
            if self.storage.status(f"{path}/moves") and not self.storage.status(self.folder):
                self.storage.rename(path, self.folder)
            else:
                self.storage.delete(path, recursive=True)

    def _read_moves(self) -> Moves | None:
        try:
            moves = parse(Moves, self.storage.read(f"{self.folder}/moves"))
            data = self.storage.read(f"{self.folder}/manifest")
        except NotFound:
            return None
        return moves if self._is_marked(data) and self._node().value.manifest_digest == moves.manifest_digest else None

    def _is_marked(self, manifest: bytes) -> bool:
        """Whether it is the manifest with which the shift became PENDING."""
        return hashlib.sha256(manifest).hexdigest() == self._node().value.manifest_digest

    def _is_in_reach(self, move: Move) -> bool:
        for path in (f"{self.folder}/{move.source}", move.target):
            status = self.storage.status(path)
            if status and status.size == move.bytes:
                return True
        return False

    def _finish(self, manifest: Manifest, moves: Moves) -> None:
        for move in moves.files:
            self._move(move)
            reach("commit.between_moves")
        reach("commit.after_moves")
        final = layout.manifest(self.shift.number, self.shift.id)
        self._rename(f"{self.folder}/blocks", layout.blocks(self.shift.number, self.shift.id))
        reach("commit.after_blocks")
        self._rename(f"{self.folder}/manifest", final)
        reach("commit.after_manifest_moved")
        self._commit_ledger(manifest, final)

    def _move(self, move: Move) -> None:
        self.lease.ensure_held()
        self._rename(f"{self.folder}/{move.source}", move.target)
        status = self.storage.status(move.target)
        if status is None or status.size != move.bytes:
            raise DataLoss(
                f"Cannot commit {self.stream}/{self.shift.id}: {move.target} has "
                f"{status.size if status else 'no'} bytes, wanted {move.bytes}"
            )

    def _rename(self, source: str, target: str) -> None:
        """Done already is done: a file of this name is an earlier try's, and stays if it has the same bytes.

        A zombie may come here when its successor has committed that very file: it must not touch it.
        """
        try:
            self.storage.rename(source, target)
        except NotFound:
            if not self.storage.status(target):
                raise
        except AlreadyExists:
            if not self._is_same(source, target):
                self._set_aside(target, f"{source}.replaced")
                self.storage.rename(source, target)

    def _set_aside(self, target: str, place: str) -> None:
        """Into a folder that a successor takes away: a zombie that wakes here cannot touch what was committed since."""
        self._ensure_own_root(target)
        self.lease.confirm()
        reach("commit.before_replacing")
        try:
            self.storage.rename(target, place, make_parents=False)
        except NotFound:
            self.lease.confirm()
            raise

    def _ensure_own_root(self, target: str) -> None:
        """Names hold the shift and not the stream: what another stream committed under them stays as it is."""
        for path in manifests_named(self.storage, self.shift.id):
            other = read_manifest(self.storage, path).stream
            if other != self.stream:
                raise WrongUse(
                    f"Cannot commit {self.stream}/{self.shift.id}: {target} is in the way, and {path} is of the "
                    f"stream {other}; wanted a root of its own"
                )

    def _is_same(self, source: str, target: str) -> bool:
        return digest_of(self.storage, source) == digest_of(self.storage, target)

    def _mark_pending(self, digest: str) -> None:
        self._mark(ShiftState.PENDING, digest)

    def _mark(self, state: ShiftState, digest: str | None) -> None:
        node = self._node()
        transaction = self.ledger.begin(f"mark {self.shift.id} {state}")
        self.lease.check_in(transaction)
        record = replace(node.value, state=state, manifest_digest=digest)
        transaction.put(paths.shift(self.stream, self.shift.id), record, version=node.version)
        try:
            transaction.commit()
        except CommitStateUnknown:
            if self._node().value != record:
                raise
        except CommitFailed:
            self.lease.confirm()
            raise

    def _commit_ledger(self, manifest: Manifest, path: str) -> None:
        """The manifest has its final name, so what lies below `_tmp` is needed no more; deleted after the transaction
        it would stay for ever when the driver dies in between.

        Hours that only get a gap are written before the transaction, which they could make too large: nothing that the
        gap spoils can be ready before.
        """
        self.discard_work()
        reach("commit.after_discard")
        held = hours_only_held(manifest)
        for first in range(0, len(held), HOURS_AT_ONCE):
            self._persist(partial(self._hold_once, held[first : first + HOURS_AT_ONCE], manifest))
        reach("commit.after_holding")
        self._persist(partial(self._commit_once, manifest, path))
        reach("commit.after_transaction")

    def _persist(self, commit_once: Callable[[], None]) -> None:
        """Archive and publish may touch the same hours: then read again. A lost epoch ends it as Fenced."""
        while True:
            try:
                return commit_once()
            except CommitFailed:
                self.lease.confirm()

    def _hold_once(self, hours: Sequence[Hour], manifest: Manifest) -> None:
        transaction = self.ledger.begin(f"hold hours of {self.shift.id}")
        self.lease.check_in(transaction)
        for hour in hours:
            found = self.ledger.hour(hour)
            held = touch(found.value, hour, manifest)
            if held != found.value:
                self.ledger.put_hour(transaction, hour, found, held)
        try:
            transaction.commit()
        except CommitStateUnknown:
            found_now = {hour: self.ledger.hour(hour).value for hour in hours}
            if any(touch(record, hour, manifest) != record for hour, record in found_now.items()):
                raise

    def _commit_once(self, manifest: Manifest, path: str) -> None:
        node = self._node()
        head, positions = self.ledger.head(), self.ledger.positions()
        version = self.ledger.timelines_version()
        if version.value.version != self.shift.timelines_version:
            raise DataLoss(
                f"Cannot commit {self.stream}/{self.shift.id}: planned on version {self.shift.timelines_version} of "
                f"the timelines, found {version.value.version}"
            )
        transaction = self.ledger.begin(f"commit {self.shift.id}")
        self.lease.check_in(transaction)
        transaction.check(paths.timelines(self.stream), version=version.version)
        closed = replace(head.value, open=None, epoch=self.lease.epoch)
        transaction.put(paths.head(self.stream), closed, version=head.version)
        transaction.put(paths.positions(self.stream), manifest.positions, version=positions.version)
        record = ShiftRecord(number=self.shift.number, state=ShiftState.COMMITTED, cut=self.shift.is_cut, manifest=path)
        transaction.put(paths.shift(self.stream, self.shift.id), record, version=node.version)
        self._touch_hours(manifest, transaction)
        reach("commit.before_transaction")
        try:
            transaction.commit()
        except CommitStateUnknown:
            if self._node().value != record:
                raise

    def _touch_hours(self, manifest: Manifest, transaction: Transaction) -> None:
        for hour in hours_changed(manifest):
            found = self.ledger.hour(hour)
            self.ledger.put_hour(transaction, hour, found, touch(found.value, hour, manifest))

    def _node(self) -> Versioned[ShiftRecord]:
        node = self.ledger.shift(self.shift.id)
        if node is None:
            raise DataLoss(f"Cannot commit {self.stream}/{self.shift.id}: its node is gone from ZooKeeper")
        return node
