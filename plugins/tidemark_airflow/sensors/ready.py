"""Wait for the flag of an hour or a day."""

import time
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowSensorTimeout, AirflowSkipException

from tidemark.config import load_stream
from tidemark.environment import streams_file
from tidemark.errors import WrongUse
from tidemark.names import Hour, parse_subject
from tidemark_airflow.connections import connection_from_airflow
from tidemark_airflow.tasks import DAY, HOUR
from tidemark_airflow.triggers.ready import ReadyTrigger


class _ReadySensor(BaseOperator):
    """Succeeds with the revision that it found; waits in the triggerer, without a slot.

    A wrong stream or time fails at once, a time-out with the reasons that `tidemark why` gives.
    """

    def __init__(
        self, *, stream: str, revision: int = 1, timeout: timedelta = timedelta(hours=6), **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if revision < 1:
            raise WrongUse(f"Cannot wait for revision {revision} of {stream}: wanted 1 or more")
        self.stream = stream
        self.revision = revision
        self.timeout = timeout

    @property
    def subject(self) -> str:
        raise NotImplementedError

    def execute(self, context: Context) -> int:
        from tidemark.ledger.zookeeper import open_session
        from tidemark.publish.ask import ready_revision

        load_stream(streams_file(), self.stream)
        subject = parse_subject(self.subject)
        with open_session(connection_from_airflow) as client:
            found = ready_revision(client, self.stream, subject)
        if found < self.revision:
            deadline = self.deadline(context)
            # A trigger that fires at once overtakes the executor's report of this very try, and Airflow 3.3.2 then
            # tries the task again: each try would alert.
            if time.time() >= deadline:
                return self.complete(context, {"revision": 0})
            trigger = ReadyTrigger(stream=self.stream, subject=str(subject), revision=self.revision, deadline=deadline)
            self.defer(trigger=trigger, method_name="complete")
        return found

    def deadline(self, context: Context) -> float:
        """When to give up, in seconds of the epoch."""
        del context
        return time.time() + self.timeout.total_seconds()

    def complete(self, context: Context, event: dict[str, Any]) -> int:
        del context
        found = int(event["revision"])
        if not found:
            raise AirflowSensorTimeout(f"{self._why()}\nwaited for revision {self.revision} for {self.timeout}")
        return found

    def _why(self) -> str:
        from tidemark.drive.why import why

        stream = load_stream(streams_file(), self.stream)
        answer = why(stream, parse_subject(self.subject), connection_from_airflow)
        return "\n".join(answer.lines(self.stream))


class HourReadySensor(_ReadySensor):
    """`hour` is a template, UTC: `2026-11-15T07`, or an ISO time of a full hour with its zone."""

    template_fields = ("stream", "hour")

    def __init__(self, *, hour: str = HOUR, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hour = hour

    @property
    def subject(self) -> str:
        if "T" not in self.hour:
            raise WrongUse(f"Cannot read {self.hour!r} as an hour: wanted UTC, such as 2026-11-15T07")
        return self.hour


class HourOnTimeSensor(HourReadySensor):
    """Fails, with the reasons, when the hour is not ready `within` this time from its end.

    A backfill or a run by hand has the time from its own start: it is not late because its hour is old.
    """

    def __init__(self, *, within: timedelta, **kwargs: Any) -> None:
        super().__init__(timeout=within, **kwargs)

    def deadline(self, context: Context) -> float:
        run = context["dag_run"]
        since = run.start_date if run.run_type != "scheduled" else None
        start_s = since.timestamp() if since else Hour.parse(self.hour).end_ms / 1000
        return start_s + self.timeout.total_seconds()


class DayReadySensor(_ReadySensor):
    """`day` is a template, UTC: `2026-11-15`.

    With `last_hour`, a template of an hour, the task is skipped unless that is the last one of its day.
    """

    template_fields = ("stream", "day", "last_hour")

    def __init__(
        self,
        *,
        day: str = DAY,
        last_hour: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.day = day
        self.last_hour = last_hour

    @property
    def subject(self) -> str:
        if "T" in self.day:
            raise WrongUse(f"Cannot read {self.day!r} as a day: wanted UTC, such as 2026-11-15")
        return self.day

    def execute(self, context: Context) -> int:
        if self.last_hour and Hour.parse(self.last_hour).hh != "23":
            raise AirflowSkipException(f"{self.day} is waited for after its last hour, not after {self.last_hour}")
        return super().execute(context)
