"""Archive the hours of a stream."""

from contextlib import suppress
from typing import Any

from airflow.sdk import Context

from tidemark.config import Stream
from tidemark.metrics import Stage
from tidemark_airflow.connections import connection_from_airflow
from tidemark_airflow.metrics import measured
from tidemark_airflow.operators.spark_job import SparkJobOperator, SparkNeeded, refuse_spark
from tidemark_airflow.tasks import task_of


class ArchiveOperator(SparkJobOperator):
    """Submits jobs/archive.py when there are files to join."""

    def __init__(self, *, stream: Stream, **kwargs: Any) -> None:
        super().__init__(stream=stream, job="archive", **kwargs)

    def execute(self, context: Context) -> None:
        with measured(self.stream, Stage.ARCHIVE):
            self._archive(context)

    def _archive(self, context: Context) -> None:
        from tidemark.drive.archive import archive_stream

        with suppress(SparkNeeded):
            archive_stream(self.stream, connection_from_airflow, task_of(context), refuse_spark)
            return
        super().execute(context)
