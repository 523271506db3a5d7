"""A rerun of a committed shift: what is missing is restored, what is there stays; never a second copy."""

import posixpath
from collections.abc import Sequence

from tidemark import layout
from tidemark.consume.results import SplitResult
from tidemark.errors import DataLoss
from tidemark.index import IndexRecord, is_held, read_index
from tidemark.ledger.records import HourState
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
    archived = {
        name: _archived(storage, ledger, Hour.parse(name)) for name in {file.hour for file in gone if file.hour}
    }
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


def _is_expired(ledger: StreamLedger, hour: str) -> bool:
    return ledger.hour(Hour.parse(hour)).value.state is HourState.EXPIRED


def _archived(storage: Storage, ledger: StreamLedger, hour: Hour) -> list[IndexRecord]:
    """The pieces of the hour whose targets are there."""
    pieces = read_index(storage, hour, ledger.hour(hour).value.archives)
    sizes = {status.path: status.size for status in storage.list(layout.hour_folder(hour))}
    return [piece for piece in pieces if sizes.get(piece.destFile) == piece.destBytes]
