"""The hours of a stream as their flags and the rule have them."""

from collections.abc import Sequence
from dataclasses import dataclass

from kazoo.client import KazooClient

from tidemark.ledger.records import HourState
from tidemark.ledger.stream import StreamLedger
from tidemark.names import Hour
from tidemark.publish.flag import read_hour_flag
from tidemark.publish.rule import Reason, reasons_against
from tidemark.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class HourFlag:
    """Of an hour without a flag only the reasons; of one that waits for its next revision both."""

    hour: Hour
    revision: int
    published: str | None
    lines: int
    files: int
    bytes: int
    reasons: tuple[Reason, ...]


def view_flags(
    client: KazooClient, stream: str, hours: Sequence[Hour], storage: Storage, now_ms: int
) -> list[HourFlag]:
    ledger = StreamLedger(client, stream)
    positions = ledger.positions().value
    found = []
    for hour in hours:
        record = ledger.hour(hour).value
        revision = 0 if record.state is HourState.EXPIRED else record.revision
        flag = read_hour_flag(storage, hour, revision) if revision else None
        files = flag["files"] if flag else []
        found.append(
            HourFlag(
                hour=hour,
                revision=revision,
                published=flag["published"] if flag else None,
                lines=flag["counts"]["lines"] if flag else 0,
                files=len(files),
                bytes=sum(file["bytes"] for file in files),
                reasons=reasons_against(hour, record, positions, now_ms),
            )
        )
    return found
