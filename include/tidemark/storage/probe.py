"""Whether a root takes files: by writing one, and leaving nothing behind."""

from contextlib import suppress
from itertools import accumulate
from uuid import uuid4

from tidemark.errors import TidemarkError
from tidemark.storage.paths import join_path
from tidemark.storage.port import Storage


def probe_writing(storage: Storage, folder: str) -> None:
    """Write a file below the folder and read it, then remove it and every folder that was made for it.

    `storage` is the whole file system's, so that a root that was not there need not stay either. Raise what it raises.
    """
    work = join_path(folder, f"check-{uuid4().hex}")
    file = join_path(work, "probe")
    made = [path for path in accumulate(work.split("/"), join_path) if storage.status(path) is None]
    try:
        storage.create(file, work.encode())
        if storage.read(file) != work.encode():
            raise TidemarkError(f"Cannot read {storage.uri(file)} back: found other bytes than were written")
    finally:
        # What is not empty is no longer ours alone, and stays.
        with suppress(TidemarkError):
            storage.delete(file)
            for path in reversed(made):
                storage.delete(path)
