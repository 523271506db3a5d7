"""Publish what is ready."""

from typing import Any

from airflow.sdk import BaseOperator, Context

from tidemark.config import Stream
from tidemark_airflow.connections import connection_from_airflow
from tidemark_airflow.tasks import task_of


class PublishOperator(BaseOperator):
    """One sweep over all hours and days of the stream; returns the flags that it wrote."""

    def __init__(self, *, stream: Stream, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stream = stream

    def execute(self, context: Context) -> list[str]:
        from tidemark.drive.publish import publish_stream

        published = publish_stream(self.stream, connection_from_airflow, task_of(context))
        return [f"{flag.subject} revision {flag.revision}" for flag in published]
