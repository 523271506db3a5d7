"""Consume the shift of a run's data interval."""

from contextlib import suppress
from typing import Any

from airflow.sdk import Context

from tidemark.config import Stream
from tidemark.metrics import Stage
from tidemark.names import Interval, isoformat
from tidemark_airflow.connections import connection_from_airflow
from tidemark_airflow.metrics import commits_counted, measured
from tidemark_airflow.operators.spark_job import SparkJobOperator, SparkNeeded, refuse_spark
from tidemark_airflow.tasks import interval_of, task_of


class ConsumeOperator(SparkJobOperator):
    """Submits jobs/consume.py when there are records to read; a quiet interval is committed here, without Spark."""

    def __init__(self, *, stream: Stream, **kwargs: Any) -> None:
        super().__init__(stream=stream, job="consume", **kwargs)

    def execute(self, context: Context) -> None:
        interval = interval_of(context, self.stream)
        with measured(self.stream, Stage.CONSUME), commits_counted(self.stream):
            self._consume(interval, context)

    def _consume(self, interval: Interval, context: Context) -> None:
        from tidemark.drive.consume import consume_interval

        with suppress(SparkNeeded):
            consume_interval(self.stream, interval, connection_from_airflow, task_of(context), refuse_spark)
            return
        start, end = isoformat(interval.start_ms), isoformat(interval.end_ms)
        self.application_args = [*(self.application_args or []), "--start", start, "--end", end]
        super().execute(context)
