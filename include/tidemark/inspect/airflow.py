"""What Airflow knows of an hour that is not ready: the DAG that should bring it, and its run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidemark.airflow import AirflowApi
from tidemark.environment import Connections
from tidemark.errors import ServiceUnreachable, WrongUse
from tidemark.names import Hour, isoformat

_PATIENCE_S = 10
_WORKING = ("failed", "upstream_failed", "up_for_retry", "running", "deferred", "queued", "scheduled")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTask:
    """`map_index` is -1 for one that is not mapped, `state` None before it is scheduled; only what began has a log."""

    id: str
    map_index: int
    state: str | None
    attempt: int
    has_begun: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    id: str
    state: str
    tasks: tuple[RunTask, ...]


class AskAirflow:
    """Connects once, at the first question; an Airflow that cannot be asked is an answer too."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._api: AirflowApi | None = None

    def __call__(self, stream: str, hour: Hour) -> list[str]:
        try:
            self._api = self._api or AirflowApi.connect(self._connections, timeout_s=_PATIENCE_S)
            return _notes(self._api, f"ingest_{stream}", hour)
        except (WrongUse, ServiceUnreachable) as error:
            return [f"Airflow was not asked: {error}"]


def notes_of(dag: str, hour: Hour, is_paused: bool | None, runs: Sequence[Run]) -> Iterator[str]:
    """`is_paused` is None when there is no such DAG."""
    if is_paused is None:
        yield f"Airflow has no DAG {dag}: look for import errors on its page"
        return
    if is_paused:
        yield f"the DAG {dag} is paused: nothing is scheduled until it is not (airflow dags unpause {dag})"
    if not runs:
        yield (
            f"Airflow never scheduled a run of {dag} for this hour; a later hour's run brings it too, or: "
            f'airflow dags trigger {dag} --conf \'{{"hour": "{hour}"}}\''
        )
    for run in runs:
        yield f"the run {run.id} is {run.state}"
        for task in run.tasks:
            if task.state in _WORKING:
                yield f"its task {task.id} is {task.state}, try {task.attempt}"


def _notes(api: AirflowApi, dag: str, hour: Hour) -> list[str]:
    found = api.find(f"/api/v2/dags/{dag}")
    runs = _runs_of(api, dag, hour) if found else []
    return list(notes_of(dag, hour, found["is_paused"] if found else None, runs))


def _runs_of(api: AirflowApi, dag: str, hour: Hour) -> list[Run]:
    start = isoformat(hour.start_ms)
    found = api.get(f"/api/v2/dags/{dag}/dagRuns", logical_date_gte=start, logical_date_lte=start)["dag_runs"]
    names = [(run["dag_run_id"], run["state"]) for run in found]
    return [Run(id=run, state=state, tasks=_tasks_of(api, dag, run)) for run, state in names]


def _tasks_of(api: AirflowApi, dag: str, run: str) -> tuple[RunTask, ...]:
    found = api.get(f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances")["task_instances"]
    return tuple(
        RunTask(
            id=task["task_id"],
            map_index=task["map_index"],
            state=task["state"],
            attempt=task["try_number"],
            has_begun=task["start_date"] is not None,
        )
        for task in found
    )
