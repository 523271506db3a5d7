"""The one question that sensors and triggers ask."""

from kazoo.client import KazooClient

from tidemark.ledger.records import HourState
from tidemark.ledger.stream import StreamLedger
from tidemark.names import Day, Hour


def ready_revision(client: KazooClient, stream: str, subject: Hour | Day) -> int:
    """The revision of the newest flag, 0 when there is none, or none any more."""
    ledger = StreamLedger(client, stream)
    node = ledger.hour(subject) if isinstance(subject, Hour) else ledger.day(str(subject))
    return 0 if node.value.state is HourState.EXPIRED else node.value.revision
