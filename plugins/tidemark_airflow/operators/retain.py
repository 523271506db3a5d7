"""Remove a stream's old days: a task that lists them, and one that removes exactly that list."""

from typing import Any

from airflow.sdk import BaseOperator, Context

from tidemark.config import Stream
from tidemark_airflow.connections import connection_from_airflow
from tidemark_airflow.tasks import task_of


class ListOldDaysOperator(BaseOperator):
    """Returns the token of the list, None when there is nothing to remove."""

    def __init__(self, *, stream: Stream, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stream = stream

    def execute(self, context: Context) -> str | None:
        from tidemark.drive.retain import list_old_days

        listed = list_old_days(self.stream, connection_from_airflow, task_of(context))
        for old in listed.days:
            found = f"stays: {old.held}" if old.held else "is removed next"
            self.log.info("%s stream=%s day=%s", found, self.stream.name, old.day)
        return listed.token


class RemoveOldDaysOperator(BaseOperator):
    def __init__(self, *, stream: Stream, listed_by: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stream = stream
        self.listed_by = listed_by

    def execute(self, context: Context) -> list[str]:
        from tidemark.drive.retain import remove_old_days

        token = context["ti"].xcom_pull(task_ids=self.listed_by)
        if token is None:
            return []
        return [str(day) for day in remove_old_days(self.stream, token, connection_from_airflow, task_of(context))]
