"""Publish what is ready, and see to it that it is heard of."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tidemark.config import Stream
from tidemark.drive.services import now_ms, services
from tidemark.environment import Connections
from tidemark.errors import TidemarkError
from tidemark.failpoints import reach
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.logs import logger
from tidemark.names import Task
from tidemark.publish.announce import Unannounced, confirm, hand_over, unannounced_flags, unannounced_of
from tidemark.publish.sweep import Published, Publisher

_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """`unannounced`: those that were `published`, and earlier ones whose events nobody has seen yet."""

    published: Sequence[Published]
    unannounced: Sequence[Unannounced]


class Unpublished(TidemarkError):
    """Hours or days failed; what was published for all that is `swept`."""

    def __init__(self, message: str, swept: Swept) -> None:
        super().__init__(message)
        self.swept = swept


def publish_stream(stream: Stream, connections: Connections, task: Task) -> Swept:
    """Raise Unpublished at the end when hours or days failed: they kept no other from being published."""
    with services(stream, connections, task) as around:
        sweep = Publisher(ledger=around.ledger, storage=around.storage(), now_ms=now_ms).sweep()
        unannounced = unannounced_flags(around.ledger, around.ledger.open_days())
    for flag in sweep.published:
        logger(__name__, stream=stream.name, hour=flag.subject).info("ready", extra={"revision": flag.revision})
    for subject, error in sweep.failed.items():
        logger(__name__, stream=stream.name, hour=subject).error("is not published: %s", error)
    swept = Swept(published=list(sweep.published), unannounced=unannounced)
    if sweep.failed:
        raise Unpublished(_told(stream.name, sweep.failed), swept)
    return swept


def _told(stream: str, failed: Mapping[str, Exception]) -> str:
    subject, error = next(iter(failed.items()))
    named = ", ".join([*failed][:_NAMED]) + (", …" if len(failed) > _NAMED else "")
    reason = str(error) or type(error).__name__
    return f"Cannot publish {len(failed)} hours or days of {stream}: {named}; {subject}: {reason}"


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
