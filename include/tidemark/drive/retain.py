"""Remove the days of a stream that are older than it keeps them: first the list, then exactly that."""

from collections.abc import Callable
from dataclasses import dataclass

from tidemark.config import Stream
from tidemark.drive.services import now_ms, services
from tidemark.environment import Connections
from tidemark.errors import WrongUse
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.logs import logger
from tidemark.names import Day, Task, duration_ms
from tidemark.retain import OldDay, Retainer
from tidemark.storage import open_storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """`token` is None when no day can go."""

    days: tuple[OldDay, ...]
    token: str | None


def list_old_days(stream: Stream, connections: Connections, task: Task, *, force: bool = False) -> Listed:
    """A dry run: nothing is removed."""
    if stream.retain is None:
        raise WrongUse(f"Cannot list old days of {stream.name}: it has no `retain`, so that it keeps all")
    with services(stream, connections, task) as around:
        retainer = Retainer(ledger=around.ledger, storage=around.storage())
        days = retainer.old_days(duration_ms(stream.retain), now_ms())
        going = [old.day for old in days if force or old.held is None]
        return Listed(days=tuple(days), token=retainer.freeze(going) if going else None)


def find_listed_days(stream: Stream, token: str, connections: Connections) -> list[Day]:
    """What `remove_old_days` would remove. Raise WrongUse for a token that is not the last list's."""
    with open_session(connections) as client:
        ledger = StreamLedger(client, stream.name)
        return Retainer(ledger=ledger, storage=open_storage(stream.root, connections)).listed(token)


def remove_old_days(
    stream: Stream,
    token: str,
    connections: Connections,
    task: Task,
    *,
    force: bool = False,
    on_day: Callable[[Day], None] = lambda _: None,
) -> list[Day]:
    with services(stream, connections, task) as around, around.hour_leases() as leases:
        retainer = Retainer(ledger=around.ledger, storage=around.storage())
        removed = []
        for day in retainer.execute(token, leases, force=force):
            logger(__name__, stream=stream.name).warning("removed by retention", extra={"day": str(day)})
            removed.append(day)
            on_day(day)
        return removed
