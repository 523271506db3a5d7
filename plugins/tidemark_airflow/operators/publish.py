"""Publish what is ready, and say what could not be."""

from dataclasses import asdict
from itertools import groupby
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from tidemark.config import Stream
from tidemark.metrics import Stage
from tidemark_airflow.connections import connection_from_airflow
from tidemark_airflow.metrics import measured, send
from tidemark_airflow.tasks import task_of

AT_ONCE = 1000
"""Flags that one run announces, the oldest hours first; what a large backfill left over goes with the next runs."""

UNPUBLISHED = "unpublished"


class PublishOperator(BaseOperator):
    """One sweep over all hours and days of the stream.

    Returns the flags whose events are to be sent, in groups of one asset and one revision, for `AnnounceOperator`:
    those that it wrote, and earlier ones whose events Airflow may not have got.

    Hours and days that fail keep no event of another one from being sent, and a task that fails hands nothing on: so
    the last try succeeds, and leaves it to `CompleteOperator` to fail with what is in the XCom `unpublished`.
    """

    def __init__(self, *, stream: Stream, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stream = stream

    def execute(self, context: Context) -> list[list[dict[str, Any]]]:
        from tidemark.drive.measure import published
        from tidemark.drive.publish import Unpublished, publish_stream

        def group_of(flag: dict[str, Any]) -> tuple[bool, int]:
            return "T" not in flag["subject"], flag["revision"]

        instance, unpublished = context["ti"], None
        with measured(self.stream, Stage.PUBLISH):
            try:
                swept = publish_stream(self.stream, connection_from_airflow, task_of(context))
            except Unpublished as error:
                if instance.try_number <= instance.max_tries:
                    raise
                swept, unpublished = error.swept, str(error)
        instance.xcom_push(key=UNPUBLISHED, value=unpublished)
        send(self.stream, lambda: published(self.stream, swept.published, connection_from_airflow))
        flags = sorted((asdict(flag) for flag in swept.unannounced[:AT_ONCE]), key=group_of)
        return [list(group) for _, group in groupby(flags, group_of)]


class CompleteOperator(BaseOperator):
    """Fails when the sweep had to leave something out, so that the run is seen to have failed."""

    def __init__(self, *, published_by: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.published_by = published_by

    def execute(self, context: Context) -> None:
        unpublished = context["ti"].xcom_pull(task_ids=self.published_by, key=UNPUBLISHED)
        if unpublished:
            # Trying again changes nothing: the next run's sweep does, or `publish` when it is cleared.
            raise AirflowFailException(unpublished)
