"""Publish what is ready."""

from dataclasses import asdict
from itertools import groupby
from typing import Any

from airflow.sdk import BaseOperator, Context

from tidemark.config import Stream
from tidemark.metrics import Stage
from tidemark_airflow.connections import connection_from_airflow
from tidemark_airflow.metrics import measured, send
from tidemark_airflow.tasks import task_of

AT_ONCE = 1000
"""Flags that one run announces, the oldest hours first; what a large backfill left over goes with the next runs."""


class PublishOperator(BaseOperator):
    """One sweep over all hours and days of the stream.

    Returns the flags whose events are to be sent, in groups of one asset and one revision, for `AnnounceOperator`:
    those that it wrote, and earlier ones whose events Airflow may not have got.
    """

    def __init__(self, *, stream: Stream, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stream = stream

    def execute(self, context: Context) -> list[list[dict[str, Any]]]:
        from tidemark.drive.measure import published
        from tidemark.drive.publish import publish_stream

        def group_of(flag: dict[str, Any]) -> tuple[bool, int]:
            return "T" not in flag["subject"], flag["revision"]

        with measured(self.stream, Stage.PUBLISH):
            swept = publish_stream(self.stream, connection_from_airflow, task_of(context))
        send(self.stream, lambda: published(self.stream, swept.published, connection_from_airflow))
        flags = sorted((asdict(flag) for flag in swept.unannounced[:AT_ONCE]), key=group_of)
        return [list(group) for _, group in groupby(flags, group_of)]
