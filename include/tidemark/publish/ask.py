"""The one question that sensors and triggers ask."""

from kazoo.client import KazooClient

from tidemark.ledger.stream import StreamLedger
from tidemark.names import Hour


def ready_revision(client: KazooClient, stream: str, hour: Hour) -> int:
    """The revision of the hour's newest flag, 0 when it has none."""
    return StreamLedger(client, stream).hour(hour).value.revision
