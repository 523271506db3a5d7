"""Ask why an hour or a day is not ready."""

from tidemark.config import Stream
from tidemark.drive.services import now_ms
from tidemark.environment import Connections
from tidemark.inspect.why import DayAnswer, HourAnswer, explain_day, explain_hour
from tidemark.ledger.zookeeper import open_session
from tidemark.names import Day, Hour
from tidemark.storage import open_storage


def why(stream: Stream, subject: Hour | Day, connections: Connections) -> DayAnswer | HourAnswer:
    storage = open_storage(stream.root, connections)
    with open_session(connections) as client:
        if isinstance(subject, Hour):
            return explain_hour(client, stream, subject, connections, storage, now_ms())
        return explain_day(client, stream, subject, connections, storage, now_ms())
