"""What an hour's files are, against what manifests and index say of them. Reads, and changes nothing."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemark import layout
from tidemark.archive.join import VerifyOrder, fault_of
from tidemark.errors import NotFound
from tidemark.index import IndexRecord, by_target, is_held, read_index, read_segment
from tidemark.ledger.records import HourRecord
from tidemark.ledger.stream import StreamLedger
from tidemark.manifest import Manifest, ManifestFile, list_manifests, read_manifest
from tidemark.names import Hour
from tidemark.storage import Storage

Verify = Callable[[Sequence[VerifyOrder]], list[str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Paths, and where there is one the reason. Everything is empty when there is nothing to do or to tell."""

    hour: Hour
    lost: Mapping[str, str]
    """Targets that are gone or not whole: their sources are to be archived again."""
    kept: Mapping[str, str]
    """Targets that are not whole, but a flag names them: nobody changes them."""
    waiting: tuple[int, ...]
    """Numbers of shifts with files that no archive holds."""
    restored: tuple[str, ...]
    """Sources that were damaged or gone, and are there again."""
    leftovers: tuple[str, ...]
    """Sources that an archive holds."""
    unnamed: tuple[str, ...]
    """Files that no manifest and no index names: left alone."""

    @property
    def is_settled(self) -> bool:
        return not (self.lost or self.waiting or self.restored or self.leftovers)


def verify_here(orders: Sequence[VerifyOrder]) -> list[str | None]:
    return [fault_of(order) for order in orders]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyor:
    """Remembers the manifests that it read: make a new one for each run."""

    ledger: StreamLedger
    storage: Storage
    _manifests: dict[str, Manifest] = field(default_factory=dict)
    _places: dict[str, tuple[int, str]] = field(default_factory=dict)

    def look(self, hour: Hour, record: HourRecord, verify: Verify | None = None) -> Survey:
        """Targets are compared by length, with `verify` by every byte."""
        index = read_index(self.storage, hour, record.archives)
        sizes, incoming = self._sizes(layout.hour_folder(hour)), self._sizes(layout.incoming_folder(hour))
        wrong = self._wrong_targets(index, sizes, verify)
        flagged = self._flagged(hour, record) if wrong else set()
        kept = {path: reason for path, reason in wrong.items() if path in flagged and path in sizes}
        lost = {path: reason for path, reason in wrong.items() if path not in kept}
        live = [piece for piece in index if piece.destFile not in lost]
        files = {path: file for path in incoming if (file := self.file_of(path))}
        held = {path for path, file in files.items() if is_held(path, file.lines, live)}
        again = {piece.srcFile for piece in index if piece.destFile in lost}
        damaged = {gap.file for gap in record.gaps if gap.file}
        return Survey(
            hour=hour,
            lost=lost,
            kept=kept,
            waiting=tuple(sorted({*record.dirty, *self._numbers_of({*files, *again} - held)})),
            restored=tuple(sorted(damaged.intersection(files))),
            leftovers=tuple(sorted(held)),
            unnamed=tuple(sorted((*self._unnamed_targets(hour, record, index, sizes), *self._unnamed(incoming)))),
        )

    def file_of(self, path: str) -> ManifestFile | None:
        """What a committed manifest says of a file; None when none names it."""
        shift = layout.shift_of_boom(path)
        place = self._place_of(shift) if shift else None
        if shift is None or place is None:
            return None
        if shift not in self._manifests:
            self._manifests[shift] = read_manifest(self.storage, place[1])
        return next((file for file in self._manifests[shift].files if file.path == path), None)

    def _place_of(self, shift: str) -> tuple[int, str] | None:
        """Number and path of a committed shift's manifest. An open shift may have one already: it does not count."""
        if shift not in self._places:
            found = list_manifests(self.storage)
            opened = self.ledger.head().value.open
            places = {layout.shift_of_manifest(path): (number, path) for number, path in found.items()}
            self._places.update({name: place for name, place in places.items() if name != opened})
        return self._places.get(shift)

    def _numbers_of(self, paths: Iterable[str]) -> set[int]:
        shifts = {shift for path in paths if (shift := layout.shift_of_boom(path))}
        return {place[0] for shift in shifts if (place := self._place_of(shift))}

    def _sizes(self, folder: str) -> dict[str, int]:
        return {status.path: status.size for status in self.storage.list(folder) if not status.is_folder}

    def _wrong_targets(
        self, index: Sequence[IndexRecord], sizes: Mapping[str, int], verify: Verify | None
    ) -> dict[str, str]:
        wrong: dict[str, str] = {}
        whole: list[tuple[IndexRecord, ...]] = []
        for path, pieces in by_target(index).items():
            if path not in sizes:
                wrong[path] = "it is gone"
            elif sizes[path] != pieces[0].destBytes:
                wrong[path] = f"it has {sizes[path]} bytes, the index says {pieces[0].destBytes}"
            else:
                whole.append(tuple(pieces))
        if verify:
            faults = verify([VerifyOrder(pieces=pieces, storage=self.storage) for pieces in whole])
            wrong |= {pieces[0].destFile: fault for pieces, fault in zip(whole, faults, strict=True) if fault}
        return wrong

    def _flagged(self, hour: Hour, record: HourRecord) -> set[str]:
        """Of a flag that is being published the archiver cannot know the files: all of them count as named."""
        named = {
            file["path"]
            for revision in range(1, record.revision + 1)
            for file in _read_flag(self.storage, layout.hour_flag(hour, revision)).get("files", ())
        }
        if record.publishing:
            named |= {file["path"] for file in _read_flag(self.storage, record.publishing.path).get("files", ())}
        return named

    def _unnamed_targets(
        self, hour: Hour, record: HourRecord, index: Sequence[IndexRecord], sizes: Mapping[str, int]
    ) -> set[str]:
        number = record.archiving.number if record.archiving else 0
        segment = read_segment(self.storage, hour, number) if number else None
        named = {piece.destFile for piece in (*index, *(segment.pieces if segment else ()))}
        return {path for path in sizes if not path.rsplit("/", 1)[-1].startswith("_")} - named

    def _unnamed(self, incoming: Iterable[str]) -> list[str]:
        """Of an open shift the files may be there before its manifest."""
        nameless = [path for path in incoming if self.file_of(path) is None]
        opened = self.ledger.head().value.open if nameless else None
        return [path for path in nameless if opened is None or layout.shift_of_boom(path) != opened]


def _read_flag(storage: Storage, path: str) -> dict[str, Any]:
    try:
        flag: dict[str, Any] = json.loads(storage.read(path))
    except NotFound:
        return {}
    return flag
