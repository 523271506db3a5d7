"""Where the files are kept: HDFS or a local folder behind one port."""

from pathlib import Path

from tidemark.environment import WEBHDFS, Connections
from tidemark.storage.local import LocalStorage
from tidemark.storage.paths import split_root
from tidemark.storage.port import FileAttributes, FileStatus, Sink, Space, Storage, digest_of
from tidemark.storage.webhdfs import WebHdfsStorage

__all__ = ["FileAttributes", "FileStatus", "Sink", "Space", "Storage", "digest_of", "open_file_system", "open_storage"]

_LEAVE_ALONE = FileAttributes()


def open_storage(root: str, connections: Connections, attributes: FileAttributes = _LEAVE_ALONE) -> Storage:
    """`hdfs:///folder` (connection `webhdfs_default`) or `file:///folder`; nothing is asked or made yet."""
    scheme, path = split_root(root)
    if scheme == "file":
        return LocalStorage(root=Path(path), attributes=attributes)
    return WebHdfsStorage(root=path, connection=connections(WEBHDFS), attributes=attributes)


def open_file_system(root: str, connections: Connections, attributes: FileAttributes) -> tuple[Storage, str]:
    """All that the root lies in, and its path there: for what has to be asked before the root exists."""
    scheme, path = split_root(root)
    if scheme == "file":
        return LocalStorage(root=Path("/"), attributes=attributes), path.removeprefix("/")
    return WebHdfsStorage(root="", connection=connections(WEBHDFS), attributes=attributes), path.removeprefix("/")
