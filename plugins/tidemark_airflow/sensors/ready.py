"""Wait for the flag of an hour."""

from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator, Context

from tidemark.config import load_stream
from tidemark.environment import streams_file
from tidemark.names import Hour
from tidemark_airflow.connections import connection_from_airflow
from tidemark_airflow.triggers.ready import HourReadyTrigger


class HourReadySensor(BaseOperator):
    """Succeeds when the hour of the stream has a flag; waits in the triggerer, without a slot.

    A wrong stream or hour fails at once. `hour` is a template, UTC: `2026-11-15T07` or an ISO time of a full hour.
    """

    template_fields = ("stream", "hour")

    def __init__(
        self,
        *,
        stream: str,
        hour: str = "{{ data_interval_start.in_timezone('UTC').strftime('%Y-%m-%dT%H') }}",
        timeout: timedelta = timedelta(hours=6),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.stream = stream
        self.hour = hour
        self.timeout = timeout

    def execute(self, context: Context) -> int:
        from tidemark.ledger.zookeeper import open_session
        from tidemark.publish.ask import ready_revision

        del context
        load_stream(streams_file(), self.stream)
        hour = Hour.parse(self.hour)
        with open_session(connection_from_airflow) as client:
            revision = ready_revision(client, self.stream, hour)
        if not revision:
            trigger = HourReadyTrigger(stream=self.stream, hour=str(hour))
            self.defer(trigger=trigger, method_name="complete", timeout=self.timeout)
        return revision

    def complete(self, context: Context, event: dict[str, Any]) -> int:
        del context
        return int(event["revision"])
