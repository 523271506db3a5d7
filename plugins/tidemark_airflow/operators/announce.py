"""Tell Airflow of flags: one event for each hour or day and revision."""

from datetime import timedelta
from functools import partial
from typing import Any

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowRuntimeError, AirflowSkipException
from airflow.sdk.execution_time.context import InletEventsAccessors

from tidemark.names import moment
from tidemark_airflow.assets import asset_of
from tidemark_airflow.connections import connection_from_airflow

MARGIN = timedelta(hours=1)
"""How far the clocks of a worker and of Airflow's database may lie apart."""


class AnnounceOperator(BaseOperator):
    """Sends the events of `flags`, all of one asset and one revision, that Airflow does not have.

    Airflow takes a task's events together with its success, or not at all, so that asking Airflow for what may have
    been sent before makes it one event however often the flags come here. Two at a time would both find nothing: run it
    with `max_active_tis_per_dag=1`, and with both assets of the stream as outlets. See docs/adr/0013.
    """

    def __init__(self, *, stream: str, flags: list[dict[str, Any]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stream = stream
        self.flags = flags

    def execute(self, context: Context) -> list[str]:
        from tidemark.drive.publish import events_to_send
        from tidemark.publish.announce import Unannounced

        flags = [Unannounced(**flag) for flag in self.flags]
        asset = asset_of(self.stream, flags[0].subject)
        missing = events_to_send(self.stream, connection_from_airflow, flags, partial(self._events_since, asset))
        if not missing:
            raise AirflowSkipException("none of these events is to be sent now")
        # Airflow would send an event without a key for an outlet that got none.
        self.outlets = [asset]
        event = context["outlet_events"][asset]
        event.extra = {"revision": missing[0].revision}
        event.add_partitions([flag.subject for flag in missing])
        return [flag.subject for flag in missing]

    def _events_since(self, asset: Asset, since_ms: int) -> set[tuple[str, int]] | None:
        since = moment(since_ms) - MARGIN
        try:
            events = list(InletEventsAccessors([asset])[asset].after(since.isoformat()))
        except AirflowRuntimeError as error:
            # 3.3.2 has no answer while a run that one of the events started is queued.
            told = "Airflow cannot say which events it has, the next run asks again: %s stream=%s asset=%s"
            self.log.warning(told, error, self.stream, asset.uri)
            return None
        found = ((event.partition_key, (event.extra or {}).get("revision")) for event in events)
        return {(key, revision) for key, revision in found if key and isinstance(revision, int)}
