"""Plan the shift of a run's data interval."""

from datetime import UTC, datetime
from typing import Any

from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk import BaseOperator, Context

from tidemark.config import Stream
from tidemark.errors import WrongUse
from tidemark.names import Interval, milliseconds
from tidemark_airflow.connections import connection_from_airflow
from tidemark_airflow.tasks import task_of


class PlanOperator(BaseOperator):
    """Defers, without a slot, until the interval's end + grace; then freezes the shift and returns its id."""

    def __init__(self, *, stream: Stream, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stream = stream

    def execute(self, context: Context) -> str:
        _, end = _interval_of(context)
        deadline = end + self.stream.grace
        if datetime.now(UTC) < deadline:
            self.defer(trigger=DateTimeTrigger(moment=deadline), method_name="plan")
        return self.plan(context)

    def plan(self, context: Context, event: object = None) -> str:
        from tidemark.drive import plan_interval

        del event
        start, end = _interval_of(context)
        interval = Interval(milliseconds(start), milliseconds(end))
        return plan_interval(self.stream, interval, connection_from_airflow, task_of(context))


def _interval_of(context: Context) -> tuple[datetime, datetime]:
    start, end = context["data_interval_start"], context["data_interval_end"]
    if start is None or end is None:
        raise WrongUse("Cannot plan a run without a data interval: wanted a scheduled run or a backfill")
    return start, end
