"""What the tests of the board look at: a stream with an empty hour, and one with a gap whose reason is markup."""

from typing import NoReturn

from tests.pipeline import TASK, interval_of
from tests.services import KafkaTopic, Sent, connections_of

from tidemark.config import Stream
from tidemark.drive.acts import accept_hour
from tidemark.drive.archive import archive_stream
from tidemark.drive.consume import consume_interval
from tidemark.drive.plan import plan_interval
from tidemark.drive.publish import publish_stream
from tidemark.drive.services import now_ms
from tidemark.inspect.board import last_days
from tidemark.names import Hour
from tidemark.stack import Stack

# The board shows the last days: these hours are a week old whenever the tests run.
FIRST = Hour.parse(f"{last_days(now_ms(), 8)[-1]}T22")
SECOND = Hour(FIRST.end_ms)
THIRD = Hour(SECOND.end_ms)
MARKUP = "<img src=x onerror=\"document.title='owned'\">"


def fill(stream: Stream, stack: Stack) -> None:
    """The first hour is empty, in the second all records expired unread, the third was never consumed."""
    topic = KafkaTopic(stack, stream.topic, 2)
    _run(stream, stack, FIRST)
    topic.send(Sent(partition=1, time_ms=SECOND.start_ms, value=b"lost") for _ in range(5))
    topic.expire_before(1, 5)
    _run(stream, stack, SECOND)
    accept_hour(stream, SECOND, MARKUP, connections_of(stack), TASK)
    publish_stream(stream, connections_of(stack), TASK)
    topic.send([Sent(partition=0, time_ms=THIRD.start_ms, value=b"line")])
    plan_interval(stream, interval_of(THIRD), connections_of(stack), TASK)


def _run(stream: Stream, stack: Stack, hour: Hour) -> None:
    connections = connections_of(stack)
    plan_interval(stream, interval_of(hour), connections, TASK)
    consume_interval(stream, interval_of(hour), connections, TASK, _no_spark)
    archive_stream(stream, connections, TASK, _no_spark)
    publish_stream(stream, connections, TASK)


def _no_spark() -> NoReturn:
    raise AssertionError("an hour without records needs no Spark")
