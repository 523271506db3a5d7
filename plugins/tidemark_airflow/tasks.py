"""Who asks, and for what: a task instance in the words of the library."""

from airflow.sdk import Context, Param
from airflow.sdk.exceptions import AirflowFailException

from tidemark.config import Stream
from tidemark.names import Hour, Interval, Task, milliseconds

TASK = "{{ ti.dag_id }}/{{ ti.run_id }}/{{ ti.task_id }}"
ATTEMPT = "{{ ti.try_number }}"
MINUTES_OF_AN_HOUR = 60
# Empty for a manual run that does not say its hour: what Airflow makes up for it is the hour of asking.
_HOUR = (
    "(params.hour or ('' if dag_run.run_type == 'manual' else "
    "data_interval_start.in_timezone('UTC').strftime('%Y-%m-%dT%H')))"
)
HOUR = f"{{{{ {_HOUR} }}}}"
DAY = f"{{{{ {_HOUR}[:10] }}}}"


def hour_param() -> Param:
    """What a run by hand has to say; scheduled runs and backfills have it from their interval."""
    return Param(
        None,
        type=["null", "string"],
        title="Hour",
        description="UTC, such as 2026-11-15T07. A run by hand has to name it; others leave it empty.",
    )


def task_of(context: Context) -> Task:
    """One name for all tries of a task instance, so that a later try preempts an earlier one's lease."""
    instance = context["ti"]
    return Task(name=f"{instance.dag_id}/{instance.run_id}/{instance.task_id}", attempt=instance.try_number or 1)


def interval_of(context: Context, stream: Stream) -> Interval:
    named = context["params"].get("hour")
    if named:
        hour = Hour.parse(named)
        if stream.minutes != MINUTES_OF_AN_HOUR:
            raise AirflowFailException(
                f"Cannot run {hour} of {stream.name} by hand: it has a run every {stream.minutes} minutes; wanted "
                "airflow backfill create"
            )
        return Interval(hour.start_ms, hour.end_ms)
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if context["dag_run"].run_type == "manual" or start is None or end is None:
        # Trying again changes nothing.
        raise AirflowFailException("Cannot tell the hour of a run by hand: wanted the param hour: 2026-11-15T07")
    return Interval(milliseconds(start), milliseconds(end))
