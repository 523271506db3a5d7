"""Measure a stream from outside its stages, on a session of its own."""

from collections.abc import Sequence

from tidemark.config import Stream
from tidemark.drive.services import now_ms
from tidemark.environment import Connections
from tidemark.inspect.measure import count_committed, count_published, measure_lag, measure_standing
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.manifest import manifests_of
from tidemark.metrics import Figures
from tidemark.publish.sweep import Published
from tidemark.storage import open_storage


def standing(stream: Stream, connections: Connections) -> Figures:
    with open_session(connections) as client:
        return measure_standing(client, stream, connections, now_ms())


def lag(stream: Stream, connections: Connections) -> Figures:
    with open_session(connections) as client:
        return measure_lag(client, stream, connections)


def last_committed(stream: Stream, connections: Connections) -> int:
    """The number of the newest shift that is committed, 0 without one."""
    with open_session(connections) as client:
        head = StreamLedger(client, stream.name).head().value
    return head.number - bool(head.open)


def committed_since(stream: Stream, number: int, connections: Connections) -> Figures:
    """What the shifts after that one brought, whoever committed them."""
    numbers = range(number + 1, last_committed(stream, connections) + 1)
    return count_committed(manifests_of(open_storage(stream.root, connections), numbers))


def published(stream: Stream, flags: Sequence[Published], connections: Connections) -> Figures:
    with open_session(connections) as client:
        return count_published(StreamLedger(client, stream.name), open_storage(stream.root, connections), flags)
