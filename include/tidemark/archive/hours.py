"""The archiver's side of an hour: hold it, freeze the plan, carry it out. Copying and reading back are spread.

The order is the guarantee: data below `_tmp`, index, names, read back, ledger, and only then are sources deleted. A
piece is read from its target if that exists, else from its source, so every line can be read once at every step.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from tidemark import layout
from tidemark.archive.join import Joined, JoinOrder, Refused, RewriteOrder, VerifyOrder
from tidemark.archive.plan import Source, Target, plan_targets, targets_of_index
from tidemark.archive.survey import Surveyor
from tidemark.boom.format import BoomBlock
from tidemark.errors import AlreadyExists, CorruptFile, DataLoss, NotFound
from tidemark.failpoints import reach
from tidemark.index import (
    IndexRecord,
    Segment,
    Void,
    by_target,
    dump_index,
    is_held,
    read_index,
    read_segment,
)
from tidemark.ledger.hour_lease import HourLeases
from tidemark.ledger.records import ArchivePlan, HourRecord, HourState
from tidemark.ledger.stream import StreamLedger
from tidemark.logs import logger
from tidemark.manifest import Manifest, ManifestFile, manifests_of, read_blocks
from tidemark.names import DAY_MS, HOUR_MS, Hour, isoformat
from tidemark.storage import Storage, digest_of
from tidemark.work import discard_epochs

RECENT_MS = 48 * HOUR_MS
"""Up to this age every run looks whether an hour's targets are there; older hours are for `tidemark archive check`."""
_DELETES_AT_ONCE = 8
_PASSES = 10
"""One archives, one more each finds that a target has to be archived again; what is left then is the next run's."""


class Spread(Protocol):
    """Who copies and reads back: Spark's tasks, or this process."""

    def join(self, orders: Sequence[JoinOrder]) -> list[Joined | Refused]: ...

    def rewrite(self, orders: Sequence[RewriteOrder]) -> list[Source | Refused]: ...

    def verify(self, orders: Sequence[VerifyOrder]) -> list[str | None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A frozen plan, with the files that it is about and what is left of them to join."""

    hour: Hour
    plan: ArchivePlan
    folder: str
    files: Mapping[str, ManifestFile]
    sources: Mapping[str, Source]
    shifts: Mapping[str, int]
    before: Sequence[IndexRecord]
    """What earlier archives hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HourArchiver:
    ledger: StreamLedger
    storage: Storage
    leases: HourLeases
    surveyor: Surveyor
    target_bytes: int
    rollover_ms: int | None
    now_ms: Callable[[], int]

    def waiting(self) -> list[Hour]:
        """Hours with something to archive, to finish or to archive again: of open days, where all of the first two lie,
        and of those days that are young enough to be looked at for the last."""
        positions = self.ledger.positions().value
        if not positions.timelines:
            return []
        lowest = positions.lowest_watermark_ms
        reached = self.now_ms() if lowest is None else lowest
        return [
            hour
            for hour, node in self.ledger.hours_of(sorted({*self.ledger.open_days(), *_recent_days(reached)})).items()
            if node.value.state is not HourState.EXPIRED and self._is_waiting(hour, node.value, reached)
        ]

    def archive(self, hour: Hour, spread: Spread, *, deep: bool = False) -> bool:
        """False when somebody else works on the hour. With `deep` every byte of its targets is read first."""
        if not self.leases.take(hour):
            return False
        try:
            for _ in range(_PASSES):
                record = self._freeze(hour, spread, deep=deep)
                if record is None:
                    break
                self._carry_out(hour, record, spread)
                deep = False
        finally:
            self.leases.release(hour)
        return True

    def _is_waiting(self, hour: Hour, record: HourRecord, reached_ms: int) -> bool:
        if record.archiving:
            return True
        if hour.end_ms > reached_ms:
            return bool(record.dirty) and self._rolls_over(hour, record)
        if record.dirty or any(gap.file and self.storage.status(gap.file) for gap in record.gaps):
            return True
        is_recent = hour.end_ms > reached_ms - RECENT_MS
        return bool(record.archives) and is_recent and not self._is_settled(hour, record)

    def _is_settled(self, hour: Hour, record: HourRecord) -> bool:
        try:
            return self.surveyor.look(hour, record).is_settled
        except NotFound as error:
            # Without its index nothing can be said of an hour, and others must not wait for it.
            self._tell(hour, {layout.hour_folder(hour): str(error)}, "cannot be looked at")
            return True

    def _rolls_over(self, hour: Hour, record: HourRecord) -> bool:
        """Whether an hour that is still open has enough, or waited long enough, to be joined."""
        if self.rollover_ms is None:
            return False
        manifests = manifests_of(self.storage, record.dirty)
        size = sum(file.bytes for manifest in manifests for file in manifest.files_of(str(hour)))
        oldest = min(manifest.shift.planned_ms for manifest in manifests)
        return size >= self.target_bytes or oldest + self.rollover_ms <= self.now_ms()

    def _freeze(self, hour: Hour, spread: Spread, *, deep: bool) -> HourRecord | None:
        """Find the plan that an earlier run froze, or validate what is there and freeze one. None: nothing is left."""
        record = self.ledger.hour(hour).value
        if record.archiving:
            return record
        survey = self.surveyor.look(hour, record, spread.verify if deep else None)
        if survey.leftovers:
            self._delete_leftovers(hour, record, survey.leftovers, spread)
        if not (survey.waiting or survey.lost):
            self._tell(hour, survey.kept, "is damaged, but a flag names it: it is left alone")
            self._tell(hour, dict.fromkeys(survey.unnamed, ""), "is named by no manifest: it is left alone")
            return None
        self._tell(hour, survey.lost, "is archived again")
        plan = ArchivePlan(
            number=record.archives + 1,
            shifts=survey.waiting,
            timestamp_ms=self.now_ms(),
            target_bytes=self.target_bytes,
            voids=tuple(sorted(survey.lost)),
        )

        def freeze(found: HourRecord) -> HourRecord:
            gaps = tuple(gap for gap in found.gaps if gap.file not in survey.restored)
            return replace(found, archiving=plan, gaps=gaps)

        reach("archive.before_plan")
        frozen = self.leases.update("plan the archive of", hour, freeze)
        reach("archive.after_plan")
        return frozen

    def _carry_out(self, hour: Hour, record: HourRecord, spread: Spread) -> None:
        assert record.archiving is not None, "only a frozen plan is carried out"
        plan = record.archiving
        folder, epoch = layout.work_of_archive(hour, plan.number), self.leases.epoch(hour)
        # So that a zombie's renames find nothing.
        discard_epochs(self.storage, folder, up_to=epoch - 1)
        work = self._work(hour, record, plan)
        for path in _gap_files(record).intersection(work.files):
            # Whoever found it damaged may have died before it was out of the way.
            if self.storage.status(path) and digest_of(self.storage, path) != work.files[path].digest:
                self._set_aside(hour, path, "its digest is not that of the manifest")
        filled = self._fill(work, spread)
        if plan.number > record.archives:
            self._mark_archived(work, [*work.before, *filled])
        reach("archive.after_archived")
        whole = [*self._whole_for(work.sources, work.before, spread), *filled]
        held = [path for path in work.sources if is_held(path, work.files[path].lines, whole)]
        self._delete_sources(hour, held)
        discard_epochs(self.storage, folder, up_to=epoch)
        reach("archive.after_discard")
        self.leases.update("finish the archive of", hour, lambda found: replace(found, archiving=None))
        reach("archive.after_finish")
        logger(__name__, stream=self.ledger.stream, hour=hour).info(
            "archived", extra={"archive": plan.number, "sources": len(work.sources)}
        )

    def _work(self, hour: Hour, record: HourRecord, plan: ArchivePlan) -> Work:
        manifests = manifests_of(self.storage, plan.shifts)
        before = [
            piece for piece in read_index(self.storage, hour, plan.number - 1) if piece.destFile not in plan.voids
        ]
        work = Work(
            hour=hour,
            plan=plan,
            folder=f"{layout.work_of_archive(hour, plan.number)}/{self.leases.epoch(hour)}",
            files={file.path: file for manifest in manifests for file in manifest.files_of(str(hour))},
            sources={source.path: source for manifest in manifests for source in self._sources(manifest, hour)},
            shifts={manifest.shift.id: manifest.shift.number for manifest in manifests},
            before=before,
        )
        refused = _gap_files(record)
        left = {path: source.without(before) for path, source in work.sources.items() if path not in refused}
        return replace(work, sources={path: source for path, source in left.items() if source.blocks})

    def _sources(self, manifest: Manifest, hour: Hour) -> list[Source]:
        blocks: dict[str, list[BoomBlock]] = {}
        for path, block in read_blocks(self.storage, manifest.shift):
            blocks.setdefault(path, []).append(block)
        return [
            Source(path=file.path, shard=file.shard, blocks=tuple(blocks[file.path]))
            for file in manifest.files_of(str(hour))
        ]

    def _fill(self, work: Work, spread: Spread) -> list[IndexRecord]:
        """Write the targets; the pieces of those that are whole under their names, read back."""
        segment = read_segment(self.storage, work.hour, work.plan.number)
        if segment is None:
            segment = self._join_all(work, spread)
        else:
            self._join_again(work, segment, spread)
        reach("archive.after_targets")
        for void in segment.voids:
            if self.storage.status(void.void):
                self._set_aside(work.hour, void.void, "it was not what the index said, and is archived again")
        faults = self._faults(segment.pieces, spread)
        self._tell(work.hour, faults, "is not whole")
        reach("archive.after_verify")
        return [piece for piece in segment.pieces if piece.destFile not in faults]

    def _join_all(self, work: Work, spread: Spread) -> Segment:
        joined, refused = self._join(work, self._targets(work), spread)
        while refused:
            work = self._mend(work, refused, spread)
            joined, refused = self._join(work, self._targets(work), spread)
        segment = Segment(
            pieces=tuple(record for target in joined for record in target.records),
            voids=tuple(Void(void=path, ArchiveTimestamp=work.plan.timestamp_ms) for path in work.plan.voids),
        )
        reach("archive.after_join")
        self._free_names(work.hour, segment.pieces, spread)
        self._write_index(work, segment)
        reach("archive.after_index")
        self._place(work.hour, joined)
        return segment

    def _join_again(self, work: Work, segment: Segment, spread: Spread) -> None:
        """An earlier run wrote the index and died: what is not whole yet is written as the index says.

        A target whose source was damaged since is given up: it is voided by the next archive.
        """
        faults = self._faults(segment.pieces, spread)
        wrong = {path: pieces for path, pieces in by_target(segment.pieces).items() if path in faults}
        joined, refused = self._join(work, _possible(wrong, work), spread)
        if refused:
            work = self._mend(work, refused, spread)
            joined, _ = self._join(work, _possible(wrong, work), spread)
        self._free_names(work.hour, [piece for pieces in wrong.values() for piece in pieces], spread)
        self._place(work.hour, joined)

    def _targets(self, work: Work) -> tuple[Target, ...]:
        sources = list(work.sources.values())
        return plan_targets(work.hour, work.plan.number, sources, work.plan.target_bytes)

    def _join(self, work: Work, targets: Sequence[Target], spread: Spread) -> tuple[list[Joined], list[Refused]]:
        self.leases.ensure_held(work.hour)
        outcomes = spread.join(
            [
                JoinOrder(target=target, timestamp_ms=work.plan.timestamp_ms, storage=self.storage, folder=work.folder)
                for target in targets
            ]
        )
        joined = [outcome for outcome in outcomes if isinstance(outcome, Joined)]
        return joined, [outcome for outcome in outcomes if isinstance(outcome, Refused)]

    def _mend(self, work: Work, refused: Sequence[Refused], spread: Spread) -> Work:
        """Rewrite what has another schema or codec; give up what is damaged."""
        foreign = sorted({path for found in refused for path in found.foreign})
        outcomes = spread.rewrite(
            [RewriteOrder(source=work.sources[path], storage=self.storage, folder=work.folder) for path in foreign]
        )
        rewritten = {outcome.path: outcome for outcome in outcomes if isinstance(outcome, Source)}
        failed = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
        damaged = {path: reason for found in (*refused, *failed) for path, reason in found.damaged.items()}
        for path, reason in damaged.items():
            self._give_up(work, path, reason)
        left = {path: source for path, source in work.sources.items() if path not in damaged}
        return replace(work, sources={**left, **rewritten})

    def _give_up(self, work: Work, path: str, reason: str) -> None:
        """A gap of the hour, then out of the way. What was only read wrongly is whole when it is read again."""
        file = work.files[path]
        is_there = self.storage.status(path) is not None
        if is_there and digest_of(self.storage, path) == file.digest:
            raise CorruptFile(f"{reason}; but its digest is that of the manifest: try again")
        gap = file.as_gap(work.hour)

        def hold(record: HourRecord) -> HourRecord:
            return record if path in _gap_files(record) else replace(record, gaps=(*record.gaps, gap))

        self.leases.update("record a gap of", work.hour, hold)
        reach("archive.after_gap")
        if is_there:
            self._set_aside(work.hour, path, reason)
        reach("archive.after_set_aside")
        self._tell(work.hour, {path: reason}, "is a gap of the hour until a rerun of its shift restores it")

    def _set_aside(self, hour: Hour, path: str, reason: str) -> None:
        self.leases.confirm(hour)
        place, number = layout.set_aside(path), 1
        while True:
            try:
                self.storage.rename(path, place)
                break
            except AlreadyExists:
                number += 1
                place = f"{layout.set_aside(path)}.{number}"
        told = {"file": path, "reason": reason, "time": isoformat(self.now_ms())}
        with suppress(AlreadyExists):
            self.storage.create(layout.reason_of(place), (json.dumps(told, indent=1) + "\n").encode())

    def _free_names(self, hour: Hour, pieces: Sequence[IndexRecord], spread: Spread) -> None:
        """A file under a target's name is this very target, of an earlier run, or is set aside: before the index says
        that it can be read."""
        taken = {path for path in by_target(pieces) if self.storage.status(path)}
        for path, fault in self._faults([piece for piece in pieces if piece.destFile in taken], spread).items():
            self._set_aside(hour, path, fault)

    def _faults(self, pieces: Sequence[IndexRecord], spread: Spread) -> dict[str, str]:
        targets = by_target(pieces)
        orders = [VerifyOrder(pieces=tuple(found), storage=self.storage) for found in targets.values()]
        return {path: fault for path, fault in zip(targets, spread.verify(orders), strict=True) if fault}

    def _write_index(self, work: Work, segment: Segment) -> None:
        self.leases.confirm(work.hour)
        path, data = layout.index_segment(work.hour, work.plan.number), dump_index(segment)
        try:
            self.storage.create(path, data)
        except AlreadyExists:
            if self.storage.read(path) != data:
                raise DataLoss(f"Cannot archive {work.hour}: {path} exists with another content") from None

    def _place(self, hour: Hour, joined: Sequence[Joined]) -> None:
        for target in joined:
            self.leases.confirm(hour)
            with suppress(AlreadyExists):
                self.storage.rename(target.temporary, target.target.path)
            reach("archive.between_targets")

    def _mark_archived(self, work: Work, pieces: Sequence[IndexRecord]) -> None:
        """From here readers take the archive. A shift with a file that is not in it yet stays dirty."""

        def mark(record: HourRecord) -> HourRecord:
            refused = _gap_files(record)
            missing = {
                layout.shift_of_boom(path)
                for path, file in work.files.items()
                if path not in refused and not is_held(path, file.lines, pieces)
            }
            taken = [number for shift, number in work.shifts.items() if shift not in missing]
            return replace(
                record,
                state=self._state_after(work.hour, record),
                dirty=tuple(number for number in record.dirty if number not in taken),
                unflagged=record.unflagged_with(taken),
                archives=work.plan.number,
            )

        self.leases.update("archive", work.hour, mark)

    def _state_after(self, hour: Hour, record: HourRecord) -> HourState:
        lowest = self.ledger.positions().value.lowest_watermark_ms
        is_over = lowest is None or hour.end_ms <= lowest
        return HourState.ARCHIVED if record.state is HourState.OPEN and is_over else record.state

    def _delete_leftovers(self, hour: Hour, record: HourRecord, paths: Sequence[str], spread: Spread) -> None:
        whole = self._whole_for(paths, read_index(self.storage, hour, record.archives), spread)
        files = {path: file for path in paths if (file := self.surveyor.file_of(path))}
        self._delete_sources(hour, [path for path, file in files.items() if is_held(path, file.lines, whole)])

    def _whole_for(self, paths: Collection[str], pieces: Sequence[IndexRecord], spread: Spread) -> list[IndexRecord]:
        """The pieces of targets that hold something of these sources, read back: nothing is deleted on trust."""
        targets = {piece.destFile for piece in pieces if piece.srcFile in paths}
        holding = [piece for piece in pieces if piece.destFile in targets]
        faults = self._faults(holding, spread)
        return [piece for piece in holding if piece.destFile not in faults]

    def _delete_sources(self, hour: Hour, paths: Sequence[str]) -> None:
        self.leases.confirm(hour)
        there = {status.path for status in self.storage.list(layout.incoming_folder(hour))}

        def delete(path: str) -> None:
            self.leases.ensure_held(hour)
            self.storage.delete(path)
            reach("archive.between_deletes")

        with ThreadPoolExecutor(_DELETES_AT_ONCE) as threads:
            list(threads.map(delete, [path for path in paths if path in there]))
        reach("archive.after_deletes")

    def _tell(self, hour: Hour, found: Mapping[str, str], what: str) -> None:
        for path, reason in found.items():
            logger(__name__, stream=self.ledger.stream, hour=hour).warning(
                f"{path} {what}", extra={"reason": reason} if reason else {}
            )


def _recent_days(reached_ms: int) -> list[str]:
    return [Hour.of(max(0, time_ms)).day for time_ms in range(reached_ms - RECENT_MS, reached_ms + 1, DAY_MS)]


def _gap_files(record: HourRecord) -> set[str]:
    return {gap.file for gap in record.gaps if gap.file}


def _possible(wrong: Mapping[str, Sequence[IndexRecord]], work: Work) -> tuple[Target, ...]:
    """Targets as the index has them, of which every source can still be joined."""
    possible = {
        path: pieces for path, pieces in wrong.items() if all(piece.srcFile in work.sources for piece in pieces)
    }
    return targets_of_index(possible, list(work.sources.values()))
