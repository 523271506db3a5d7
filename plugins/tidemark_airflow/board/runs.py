"""What Airflow's own database says of a stream's DAG: this is its server, which need not ask itself over HTTP."""

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import select

from tidemark.inspect.airflow import Run, RunTask
from tidemark.names import Hour, moment


def is_paused(dag: str, session: SessionDep) -> bool | None:
    """None: there is no such DAG."""
    return session.scalar(select(DagModel.is_paused).where(DagModel.dag_id == dag, ~DagModel.is_stale))


def runs_of(dag: str, hour: Hour, session: SessionDep) -> list[Run]:
    """Oldest first, each with its tasks in the order in which they began; the others come last."""
    found = session.execute(
        select(DagRun.run_id, DagRun.state)
        .where(
            DagRun.dag_id == dag,
            DagRun.data_interval_start >= moment(hour.start_ms),
            DagRun.data_interval_start < moment(hour.end_ms),
        )
        .order_by(DagRun.run_after)
    )
    return [Run(id=run, state=str(state), tasks=_tasks_of(dag, run, session)) for run, state in found]


def _tasks_of(dag: str, run: str, session: SessionDep) -> tuple[RunTask, ...]:
    found = session.execute(
        select(
            TaskInstance.task_id,
            TaskInstance.map_index,
            TaskInstance.state,
            TaskInstance.try_number,
            TaskInstance.start_date,
        )
        .where(TaskInstance.dag_id == dag, TaskInstance.run_id == run)
        .order_by(TaskInstance.start_date.is_(None), TaskInstance.start_date, TaskInstance.map_index)
    )
    return tuple(
        RunTask(id=task, map_index=map_index, state=state, attempt=attempt, has_begun=start is not None)
        for task, map_index, state, attempt, start in found
    )
