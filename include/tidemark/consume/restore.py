"""A rerun of a committed shift: what is missing is restored, what is there stays; never a second copy."""

import posixpath
from collections.abc import Sequence

from tidemark import layout
from tidemark.consume.results import SplitResult
from tidemark.errors import DataLoss
from tidemark.index import IndexRecord, is_held, read_index
from tidemark.ledger.records import HourRecord, HourState
from tidemark.ledger.stream import StreamLedger
from tidemark.manifest import Manifest, ManifestFile
from tidemark.names import Hour
from tidemark.storage import Storage


def missing_files(storage: Storage, ledger: StreamLedger, manifest: Manifest) -> tuple[ManifestFile, ...]:
    """Files that can be read neither where the commit put them nor from the archive; what is expired is not missed."""
    folders = {posixpath.dirname(file.path) for file in manifest.files}
    sizes = {status.path: status.size for folder in folders for status in storage.list(folder)}
    expired = {name for name in {file.hour for file in manifest.files if file.hour} if _is_expired(ledger, name)}
    gone = [file for file in manifest.files if sizes.get(file.path) != file.bytes and file.hour not in expired]
    hours = {name: Hour.parse(name) for name in {file.hour for file in gone if file.hour}}
    archived = {name: _archived(storage, hour, ledger.hour(hour).value) for name, hour in hours.items()}
    return tuple(file for file in gone if not is_held(file.path, file.lines, archived.get(file.hour or "", ())))


def restore(
    storage: Storage, manifest: Manifest, missing: Sequence[ManifestFile], results: Sequence[SplitResult]
) -> None:
    """Move what the rerun wrote into the place of what is missing; raise DataLoss unless it has the same bytes."""
    written = {file.path: file for result in results for file in result.files}
    for file in missing:
        found = written.get(file.path)
        if found is None or found.digest != file.digest:
            raise DataLoss(
                f"Cannot restore {file.path} of {manifest.stream}: the rerun wrote digest "
                f"{found.digest if found else 'none'}, the manifest says {file.digest}"
            )
        storage.rename(found.temporary, file.path)


def mark_waiting(storage: Storage, ledger: StreamLedger, manifest: Manifest) -> None:
    """What lies in `_incoming` and in no archive is to be archived: a rerun that restored it may have died before."""
    for name in sorted({file.hour for file in manifest.files if file.hour}):
        hour = Hour.parse(name)

        def is_waiting(record: HourRecord, hour: Hour = hour) -> bool:
            return record.state is not HourState.EXPIRED and _is_waiting(storage, manifest, hour, record)

        ledger.add_dirty(hour, manifest.shift.number, is_waiting)


def _is_waiting(storage: Storage, manifest: Manifest, hour: Hour, record: HourRecord) -> bool:
    there = {status.path for status in storage.list(layout.incoming_folder(hour))}
    files = [file for file in manifest.files_of(str(hour)) if file.path in there]
    pieces = _archived(storage, hour, record) if files else []
    return any(not is_held(file.path, file.lines, pieces) for file in files)


def _is_expired(ledger: StreamLedger, hour: str) -> bool:
    return ledger.hour(Hour.parse(hour)).value.state is HourState.EXPIRED


def _archived(storage: Storage, hour: Hour, record: HourRecord) -> list[IndexRecord]:
    """The pieces of the hour whose targets are there."""
    pieces = read_index(storage, hour, record.archives)
    sizes = {status.path: status.size for status in storage.list(layout.hour_folder(hour))}
    return [piece for piece in pieces if sizes.get(piece.destFile) == piece.destBytes]
