"""Wait for the flag of an hour or a day, in the triggerer."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from tidemark.environment import ZOOKEEPER, Connection
from tidemark.errors import ServiceUnreachable
from tidemark.names import parse_subject
from tidemark_airflow.connections import connection_from_triggerer
from tidemark_airflow.triggers.session import shared_client

POLL_S = 2.0


class ReadyTrigger(BaseTrigger):
    """Asks every few seconds; a ZooKeeper that is away is asked again.

    The event's `revision` is 0 when the deadline, in seconds of the epoch, has passed.
    """

    def __init__(self, *, stream: str, subject: str, revision: int, deadline: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.stream = stream
        self.subject = subject
        self.revision = revision
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        fields = {name: getattr(self, name) for name in ("stream", "subject", "revision", "deadline")}
        return f"{type(self).__module__}.{type(self).__qualname__}", fields

    async def run(self) -> AsyncIterator[TriggerEvent]:
        connection = await connection_from_triggerer(ZOOKEEPER)
        found = 0
        while (found := await asyncio.to_thread(self._ask, connection)) < self.revision:
            if time.time() >= self.deadline:
                found = 0
                break
            await asyncio.sleep(POLL_S)
        yield TriggerEvent({"revision": found})  # type: ignore[no-untyped-call]

    def _ask(self, connection: Connection) -> int:
        from tidemark.publish.ask import ready_revision

        try:
            return ready_revision(shared_client(connection), self.stream, parse_subject(self.subject))
        except ServiceUnreachable as error:
            self.log.warning("%s stream=%s hour=%s", error, self.stream, self.subject)
            return 0
