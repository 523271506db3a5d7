"""The storage port: the few acts that commit, archive and publish rest on, held to one behaviour suite.

Paths are relative POSIX paths below the stream's root (see `tidemark.storage.paths`); `""` is the root itself
where a folder is meant. Nothing is ever replaced: a name that is taken stays as it is (`AlreadyExists`).

Files appear whole: a file is written below a hidden name (`_….part`) next to its own and renamed when it is
complete, so a crash leaves at most such a part and never half a file under its name. A listing shows parts.
"""

import hashlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from tidemark.errors import WrongUse


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatus:
    path: str
    """Relative to the root, as every act of the port takes it."""
    size: int
    """In bytes, 0 for a folder."""
    is_folder: bool
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAttributes:
    """What written files get before they appear under their name; None leaves it to the file system."""

    owner: str | None = None
    group: str | None = None
    mode: int | None = None
    replication: int | None = None
    """Without a meaning for local files, which ignore it."""

    def __post_init__(self) -> None:
        if self.mode is not None and not 0 <= self.mode <= 0o777:
            raise WrongUse(f"Cannot give files the mode {self.mode:#o}: wanted 0o000 to 0o777")
        if self.replication is not None and self.replication < 1:
            raise WrongUse(f"Cannot give files the replication {self.replication}: wanted 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Of the file system below the root, in bytes of its disks: a file takes its size `replication` times."""

    free: int
    total: int
    replication: int
    """What a file gets that asks for nothing else."""
    nodes: int
    """How many keep files at this moment: as many copies are possible."""


class Sink(Protocol):
    def write(self, data: bytes | memoryview, /) -> int:
        """Take all of `data` and say how many bytes that were; not buffered, so write in large pieces."""


class Storage(Protocol):
    """Can be pickled and used by several threads; sessions are opened where they are first needed.

    Raises `WrongUse` for a path that is not allowed, `ServiceUnreachable` when the service stays away longer
    than the connection's `retry_seconds`, and any other refusal as a `TidemarkError` of one line.
    """

    def create(self, path: str, data: bytes) -> None:
        """Write a small file, parents included; of several writers of one name exactly one succeeds."""

    def open_write(self, path: str) -> AbstractContextManager[Sink]:
        """Stream a file of any size, parents included, in constant memory.

        The name is taken when the block ends without an error and the length was read back; an error in the
        block goes on to the caller and the part is removed as far as the service still answers. The last step
        is a `rename`, with its errors.
        """

    def rename(self, source: str, target: str, *, make_parents: bool = True) -> None:
        """Move a file or folder without replacing even an empty folder; the target's parents are made if asked.

        `NotFound` when there is no source, or no parent and none may be made. An answer that was lost is read back;
        `CommitStateUnknown` when that is not possible either.
        """

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes `[start, end)`, cut at the end of the file as a slice is."""

    def open_read(self, path: str, start: int = 0, end: int | None = None) -> BinaryIO:
        """Stream the same bytes sequentially in constant memory; close it, best by `with`."""

    def status(self, path: str) -> FileStatus | None: ...

    def list(self, path: str) -> list[FileStatus]:
        """What is directly below a folder, sorted by name; empty when there is no such folder."""

    def delete(self, path: str, recursive: bool = False) -> bool:
        """False when it was not there; a folder that is not empty is `WrongUse` unless `recursive`."""

    def make_folder(self, path: str) -> None:
        """Parents included; nothing happens when it is there, `AlreadyExists` when it is a file."""

    def space(self) -> Space | None:
        """What is left for the root, which need not be there yet; None when the service does not tell."""

    def uri(self, path: str) -> str:
        """The name by which Hadoop clients and Spark read it, not percent-encoded: a Hadoop `Path` is not."""


def digest_of(storage: Storage, path: str) -> str:
    """SHA-256 of a file, in hex, in the memory of a part of it."""
    digest = hashlib.sha256()
    with storage.open_read(path) as file:
        while data := file.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()
