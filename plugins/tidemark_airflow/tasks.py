"""Who asks, as the lease sees it: one name for all tries of a task instance, so that a later try preempts."""

from airflow.sdk import Context

from tidemark.names import Task

TASK = "{{ ti.dag_id }}/{{ ti.run_id }}/{{ ti.task_id }}"
ATTEMPT = "{{ ti.try_number }}"


def task_of(context: Context) -> Task:
    instance = context["ti"]
    return Task(name=f"{instance.dag_id}/{instance.run_id}/{instance.task_id}", attempt=instance.try_number or 1)
