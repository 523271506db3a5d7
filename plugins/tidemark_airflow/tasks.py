"""Who asks, and for what: a task instance in the words of the library."""

from airflow.sdk import Context

from tidemark.errors import WrongUse
from tidemark.names import Interval, Task, milliseconds

TASK = "{{ ti.dag_id }}/{{ ti.run_id }}/{{ ti.task_id }}"
ATTEMPT = "{{ ti.try_number }}"
HOUR = "{{ data_interval_start.in_timezone('UTC').strftime('%Y-%m-%dT%H') }}"
DAY = "{{ data_interval_start.in_timezone('UTC').strftime('%Y-%m-%d') }}"


def task_of(context: Context) -> Task:
    """One name for all tries of a task instance, so that a later try preempts an earlier one's lease."""
    instance = context["ti"]
    return Task(name=f"{instance.dag_id}/{instance.run_id}/{instance.task_id}", attempt=instance.try_number or 1)


def interval_of(context: Context) -> Interval:
    start, end = context["data_interval_start"], context["data_interval_end"]
    if start is None or end is None:
        raise WrongUse("Cannot use a run without a data interval: wanted a scheduled run or a backfill")
    return Interval(milliseconds(start), milliseconds(end))
