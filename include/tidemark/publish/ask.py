"""The one question that sensors and triggers ask."""

from kazoo.client import KazooClient

from tidemark.ledger.stream import StreamLedger
from tidemark.names import Day, Hour


def ready_revision(client: KazooClient, stream: str, subject: Hour | Day) -> int:
    """The revision of the newest flag, 0 when there is none."""
    ledger = StreamLedger(client, stream)
    node = ledger.hour(subject) if isinstance(subject, Hour) else ledger.day(str(subject))
    return node.value.revision
