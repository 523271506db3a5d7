"""Publish what is ready, and see to it that it is heard of."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tidemark.config import Stream
from tidemark.drive.services import now_ms, services
from tidemark.environment import Connections
from tidemark.failpoints import reach
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.logs import logger
from tidemark.names import Task
from tidemark.publish.announce import Unannounced, confirm, hand_over, unannounced_flags, unannounced_of
from tidemark.publish.sweep import Published, Publisher


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """`unannounced`: those that were `published`, and earlier ones whose events nobody has seen yet."""

    published: Sequence[Published]
    unannounced: Sequence[Unannounced]


def publish_stream(stream: Stream, connections: Connections, task: Task) -> Swept:
    with services(stream, connections, task) as around:
        publisher = Publisher(ledger=around.ledger, storage=around.storage(), now_ms=now_ms)
        published = publisher.sweep()
        unannounced = unannounced_flags(around.ledger, around.ledger.open_days())
    for flag in published:
        logger(__name__, stream=stream.name, hour=flag.subject).info("ready", extra={"revision": flag.revision})
    return Swept(published=published, unannounced=unannounced)


def events_to_send(
    stream: str,
    connections: Connections,
    asked: Collection[Unannounced],
    ask: Callable[[int], Collection[tuple[str, int]] | None],
) -> list[Unannounced]:
    """Those of the flags whose events have to be sent, now and once. One at a time for each stream.

    `ask` tells the subjects and revisions of all events since a time, or None when it cannot: then what may have been
    sent before waits, and what was never handed over goes without a question.
    """
    with open_session(connections) as client:
        ledger = StreamLedger(client, stream)
        wanted = {(flag.subject, flag.revision) for flag in asked}
        subjects = sorted({flag.subject for flag in asked})
        flags = [flag for subject in subjects for flag in unannounced_of(ledger, subject)]
        waiting = [flag for flag in flags if (flag.subject, flag.revision) in wanted]
        uncertain = [flag for flag in waiting if flag.handed]
        seen = ask(min(flag.published_ms for flag in uncertain)) if uncertain else ()
        reach("announce.before_confirming")
        confirm(ledger, [flag for flag in uncertain if seen and (flag.subject, flag.revision) in seen])
        lost = [flag for flag in uncertain if seen is not None and (flag.subject, flag.revision) not in seen]
        fresh = hand_over(ledger, [flag for flag in waiting if not flag.handed])
        reach("announce.before_sending")
        return [*lost, *fresh]
