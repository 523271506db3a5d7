"""What work under way leaves below `_tmp`: one folder for each epoch."""

from contextlib import suppress

from tidemark.errors import WrongUse
from tidemark.storage import Storage


def epochs_below(storage: Storage, work: str, *, up_to: int) -> list[str]:
    """The folders of the epochs up to this one, the newest first."""
    found = {int(status.path.rpartition("/")[2]): status.path for status in storage.list(work)}
    return [found[epoch] for epoch in sorted(found, reverse=True) if epoch <= up_to]


def discard_epochs(storage: Storage, work: str, *, up_to: int) -> None:
    """Delete what the epochs up to this one left, and never what a newer one has.

    A delete goes on by itself for a while when its answer is lost: whoever took over meanwhile must not feel it.
    """
    for path in epochs_below(storage, work, up_to=up_to):
        storage.delete(path, recursive=True)
    with suppress(WrongUse):
        # Only when nothing else is in it.
        storage.delete(work)
