"""Which paths the storage port takes. The stricter file system decides, so that both behave alike."""

import uuid

from tidemark.errors import WrongUse
from tidemark.names import fault_of_part, told


def check_path(path: str) -> str:
    """Return a path below the root as it is; refuse what could leave the root or what HDFS cannot name."""
    for part in path.split("/"):
        fault = fault_of_part(part)
        if fault:
            raise WrongUse(
                f"Cannot use the path {told(path)}: {fault}; wanted a relative path such as 2026-11-15/07/x.bm"
            )
    return path


def check_folder(path: str) -> str:
    """As `check_path`, with `""` for the root itself."""
    return check_path(path) if path else path


def check_range(path: str, start: int, end: int | None) -> None:
    if start < 0 or (end is not None and end < start):
        raise WrongUse(f"Cannot read {path}: found the range [{start}, {end}), wanted 0 <= start <= end")


def split_root(root: str) -> tuple[str, str]:
    """`hdfs:///a/b` to `("hdfs", "/a/b")`."""
    scheme, separator, path = root.partition("://")
    if not separator or scheme not in ("hdfs", "file") or not path.startswith("/"):
        raise WrongUse(f"Cannot open the storage {told(root)}: wanted hdfs:///folder or file:///folder")
    path = path.removesuffix("/")
    faults = [fault for part in path[1:].split("/") if (fault := fault_of_part(part))]
    if faults:
        raise WrongUse(f"Cannot open the storage {told(root)}: {faults[0]}; wanted hdfs:///folder or file:///folder")
    return scheme, path


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def part_beside(path: str) -> str:
    """A name that nobody else has, hidden from readers, in the same folder and as short for any name."""
    return join_path(parent_of(path), f"_{uuid.uuid4().hex}.part")


def join_path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
