"""Wait for the flag of an hour, in the triggerer."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from tidemark.environment import ZOOKEEPER, Connection
from tidemark.errors import ServiceUnreachable
from tidemark.names import Hour
from tidemark_airflow.connections import connection_from_triggerer

POLL_S = 5.0


class HourReadyTrigger(BaseTrigger):
    """Asks every few seconds; a ZooKeeper that is away is asked again."""

    def __init__(self, *, stream: str, hour: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.stream = stream
        self.hour = hour

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (f"{type(self).__module__}.{type(self).__qualname__}", {"stream": self.stream, "hour": self.hour})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        connection = await connection_from_triggerer(ZOOKEEPER)
        while not (revision := await asyncio.to_thread(self._ask, connection)):
            await asyncio.sleep(POLL_S)
        yield TriggerEvent({"revision": revision})  # type: ignore[no-untyped-call]

    def _ask(self, connection: Connection) -> int:
        from tidemark.ledger.zookeeper import open_session
        from tidemark.publish.ask import ready_revision

        try:
            with open_session(lambda _: connection) as client:
                return ready_revision(client, self.stream, Hour.parse(self.hour))
        except ServiceUnreachable as error:
            self.log.warning("%s", error)
            return 0
