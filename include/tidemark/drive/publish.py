"""Publish what is ready."""

from tidemark.config import Stream
from tidemark.drive.services import now_ms, services
from tidemark.environment import Connections
from tidemark.logs import logger
from tidemark.names import Task
from tidemark.publish.sweep import Published, Publisher


def publish_stream(stream: Stream, connections: Connections, task: Task) -> list[Published]:
    with services(stream, connections, task) as around:
        publisher = Publisher(ledger=around.ledger, storage=around.storage(), now_ms=now_ms)
        published = publisher.sweep()
    for flag in published:
        logger(__name__, stream=stream.name, hour=flag.subject).info("ready", extra={"revision": flag.revision})
    return published
