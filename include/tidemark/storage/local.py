"""Files of this machine. Everything that is told as done has been forced to disk, names included."""

import builtins
import ctypes
import errno
import io
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from tidemark.errors import AlreadyExists, NotFound, TidemarkError, WrongUse
from tidemark.storage.paths import check_folder, check_path, check_range, join_path, part_beside
from tidemark.storage.port import FileAttributes, FileStatus, Sink, Space

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_READ_BUFFER = 1 << 20
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStorage:
    root: Path
    attributes: FileAttributes

    def create(self, path: str, data: bytes) -> None:
        with self.open_write(path) as sink:
            sink.write(data)

    @contextmanager
    def open_write(self, path: str) -> Iterator[Sink]:
        target = self._absolute(path)
        part = self.root / part_beside(path)
        begun = self._begin(part, target)
        try:
            with begun as file:
                sink = _FileSink(file, target)
                yield sink
                self._complete(file, sink.written, target)
            with _told(f"write {target}"):
                rename_without_replacing(part, target)
                _force(target.parent)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def rename(self, source: str, target: str, *, make_parents: bool = True) -> None:
        old, new = self._absolute(source), self._absolute(target)
        with _told(f"rename {old} to {new}"):
            old.lstat()
            if make_parents:
                _make_folders(new.parent)
            rename_without_replacing(old, new)
            _force(new.parent)
            _force(old.parent)

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        with self.open_read(path, start, end) as file:
            return file.read()

    def open_read(self, path: str, start: int = 0, end: int | None = None) -> BinaryIO:
        check_range(path, start, end)
        place = self._absolute(path)
        with _told(f"read {place}"):
            file = io.FileIO(place)
            file.seek(start)
        return cast(BinaryIO, io.BufferedReader(_Range(file, start, end), _READ_BUFFER))

    def status(self, path: str) -> FileStatus | None:
        place = self.root / check_folder(path)
        with _told(f"look at {place}"):
            try:
                return _status_of(path, place.stat())
            except (FileNotFoundError, NotADirectoryError):
                return None

    def list(self, path: str) -> builtins.list[FileStatus]:
        folder = self.root / check_folder(path)
        with _told(f"list {folder}"):
            try:
                names = sorted(os.listdir(folder))
            except FileNotFoundError:
                return []
        found = (self.status(join_path(path, name)) for name in names)
        return [status for status in found if status is not None]

    def delete(self, path: str, recursive: bool = False) -> bool:
        place = self._absolute(path)
        with _told(f"delete {place}"):
            try:
                _remove(place, recursive)
            except FileNotFoundError:
                return False
            _force(place.parent)
        return True

    def make_folder(self, path: str) -> None:
        folder = self.root / check_folder(path)
        with _told(f"make the folder {folder}"):
            if folder.is_file():
                raise FileExistsError(errno.EEXIST, "it is a file", str(folder))
            _make_folders(folder)

    def space(self) -> Space:
        there = next(folder for folder in (self.root, *self.root.parents) if folder.exists())
        with _told(f"look at the disk of {there}"):
            found = shutil.disk_usage(there)
        return Space(free=found.free, total=found.total, replication=1, nodes=1)

    def uri(self, path: str) -> str:
        return f"file://{self.root / check_folder(path)}"

    def _absolute(self, path: str) -> Path:
        return self.root / check_path(path)

    def _begin(self, part: Path, target: Path) -> io.FileIO:
        with _told(f"write {target}"):
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, "the name is taken", str(target))
            _make_folders(target.parent)
            return io.FileIO(part, "xb")

    def _complete(self, file: io.FileIO, written: int, target: Path) -> None:
        with _told(f"write {target}"):
            self._set_attributes(file)
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        if size != written:
            raise TidemarkError(f"Cannot write {target}: wrote {written} bytes, found {size}")

    def _set_attributes(self, file: io.FileIO) -> None:
        if self.attributes.mode is not None:
            os.fchmod(file.fileno(), self.attributes.mode)
        if self.attributes.owner is not None or self.attributes.group is not None:
            _give_to(file, self.attributes.owner, self.attributes.group)


class _FileSink:
    def __init__(self, file: io.FileIO, target: Path) -> None:
        self._file = file
        self._target = target
        self.written = 0

    def write(self, data: bytes | memoryview, /) -> int:
        rest = memoryview(data).cast("B")
        size = rest.nbytes
        with _told(f"write {self._target}"):
            while rest:
                count = self._file.write(rest)
                rest = rest[count:]
                self.written += count
        return size


class _Range(io.RawIOBase):
    def __init__(self, file: io.FileIO, start: int, end: int | None) -> None:
        self._file = file
        self._left = None if end is None else end - start

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        with _told(f"read {self._file.name}"):
            count = self._file.readinto(memoryview(buffer)[: self._left])
        if self._left is not None:
            self._left -= count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


@contextmanager
def _told(act: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, IsADirectoryError) as error:
        raise NotFound(f"Cannot {act}: there is no such file") from error
    except FileExistsError as error:
        raise AlreadyExists(f"Cannot {act}: the name is taken") from error
    except NotADirectoryError as error:
        raise WrongUse(f"Cannot {act}: found a file where a folder is wanted") from error
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise WrongUse(f"Cannot {act}: the folder is not empty") from error
        raise TidemarkError(f"Cannot {act}: {error.strerror}") from error


def _status_of(path: str, found: os.stat_result) -> FileStatus:
    is_folder = stat.S_ISDIR(found.st_mode)
    return FileStatus(
        path=path,
        size=0 if is_folder else found.st_size,
        is_folder=is_folder,
        modified_ms=found.st_mtime_ns // 1_000_000,
    )


def rename_without_replacing(source: Path, target: Path) -> None:
    """Fail with FileExistsError rather than replace, in one act of the kernel where it can do that."""
    try:
        _rename_in_one_act(source, target)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS) or source.is_dir():
            raise
        _rename_by_link(source, target)


def _rename_in_one_act(source: Path, target: Path) -> None:
    """Linux's renameat2, which Python does not offer; os.rename replaces files and empty folders."""
    if not hasattr(_libc, "renameat2"):
        raise OSError(errno.ENOSYS, "this system cannot rename without replacing")
    names = os.fsencode(source), os.fsencode(target)
    if _libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_NOREPLACE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(source), None, str(target))


def _rename_by_link(source: Path, target: Path) -> None:
    """For file systems without it (NFS): a crash in between leaves one file under both names."""
    os.link(source, target)
    os.unlink(source)


def _remove(place: Path, recursive: bool) -> None:
    if not place.is_dir():
        place.unlink()
    elif recursive:
        shutil.rmtree(place, onerror=_pass_over_what_is_gone)
    else:
        place.rmdir()


def _pass_over_what_is_gone(_act: object, _path: str, raised: tuple[object, BaseException, object]) -> None:
    if not isinstance(raised[1], FileNotFoundError):
        raise raised[1]


def _make_folders(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folders(folder.parent)
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "found a file", str(folder)) from None
    _force(folder.parent)


def _force(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _give_to(file: io.FileIO, owner: str | None, group: str | None) -> None:
    try:
        shutil.chown(str(file.name), owner, group)  # type: ignore[arg-type]
    except LookupError as error:
        raise WrongUse(f"Cannot write {file.name}: {error}") from error
