"""One holder at a time, between processes; the kernel lets go when the holder dies."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold_lock(file: Path) -> Iterator[None]:
    """Wait until nobody else holds the lock. Not reentrant."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
