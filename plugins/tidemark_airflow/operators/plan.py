"""Plan the shift of a run's data interval."""

from datetime import UTC, datetime
from typing import Any

from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk import BaseOperator, Context

from tidemark.config import Stream
from tidemark.metrics import Stage
from tidemark.names import moment
from tidemark_airflow.connections import connection_from_airflow
from tidemark_airflow.metrics import measured
from tidemark_airflow.tasks import interval_of, task_of


class PlanOperator(BaseOperator):
    """Defers, without a slot, until the interval's end + grace; then freezes the shift and returns its id."""

    def __init__(self, *, stream: Stream, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stream = stream

    def execute(self, context: Context) -> str:
        deadline = moment(interval_of(context, self.stream).end_ms) + self.stream.grace
        if datetime.now(UTC) < deadline:
            self.defer(trigger=DateTimeTrigger(moment=deadline), method_name="plan")
        return self.plan(context)

    def plan(self, context: Context, event: object = None) -> str:
        from tidemark.drive.plan import plan_interval

        del event
        interval = interval_of(context, self.stream)
        with measured(self.stream, Stage.PLAN):
            return plan_interval(self.stream, interval, connection_from_airflow, task_of(context))
