"""Ask why an hour or a day is not ready."""

from tidemark.config import Stream
from tidemark.drive.services import now_ms
from tidemark.environment import Connections
from tidemark.inspect.airflow import AskAirflow
from tidemark.inspect.why import Asked, DayAnswer, HourAnswer, explain_day, explain_hour
from tidemark.ledger.zookeeper import open_session
from tidemark.names import Day, Hour
from tidemark.storage import open_storage


def why(stream: Stream, subject: Hour | Day, connections: Connections) -> DayAnswer | HourAnswer:
    with open_session(connections) as client:
        asked = Asked(
            client=client,
            stream=stream,
            connections=connections,
            storage=open_storage(stream.root, connections),
            ask_airflow=AskAirflow(connections),
            now_ms=now_ms(),
        )
        return explain_hour(asked, subject) if isinstance(subject, Hour) else explain_day(asked, subject)
