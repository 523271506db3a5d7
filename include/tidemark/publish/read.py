"""The flag of an hour or a day, for those who read its files."""

from dataclasses import dataclass

from kazoo.client import KazooClient

from tidemark.errors import NotYet
from tidemark.names import Day, Hour
from tidemark.publish.ask import ready_revision
from tidemark.publish.flag import read_day_flag, read_hour_flag
from tidemark.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestFlag:
    """All that an exact reader takes of a flag: its files, and how many lines they hold together."""

    revision: int
    lines: int
    files: tuple[str, ...]


def newest_flag(client: KazooClient, stream: str, subject: Hour | Day, storage: Storage) -> NewestFlag:
    """Of a day the files of those revisions of its hours that the day's flag names. Raise NotYet without a flag."""
    revision = ready_revision(client, stream, subject)
    if not revision:
        raise NotYet(f"Cannot read {stream}/{subject}: it is not ready; ask `tidemark why`")
    if isinstance(subject, Hour):
        hours = [read_hour_flag(storage, subject, revision)]
    else:
        named = read_day_flag(storage, str(subject), revision)["hours"]
        hours = [read_hour_flag(storage, Hour.parse(hour), row["revision"]) for hour, row in named.items()]
    return NewestFlag(
        revision=revision,
        lines=sum(flag["counts"]["lines"] for flag in hours),
        files=tuple(file["path"] for flag in hours for file in flag["files"]),
    )
