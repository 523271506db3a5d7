"""What Airflow knows of an hour that is not ready: the DAG that should bring it, and its run."""

from collections.abc import Iterator

from tidemark.airflow import AirflowApi
from tidemark.environment import Connections
from tidemark.errors import ServiceUnreachable, WrongUse
from tidemark.names import Hour, isoformat

_PATIENCE_S = 10
_WORKING = ("failed", "upstream_failed", "up_for_retry", "running", "deferred", "queued", "scheduled")


class AskAirflow:
    """Connects once, at the first question; an Airflow that cannot be asked is an answer too."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._api: AirflowApi | None = None

    def __call__(self, stream: str, hour: Hour) -> list[str]:
        try:
            self._api = self._api or AirflowApi.connect(self._connections, timeout_s=_PATIENCE_S)
            return list(_notes(self._api, f"ingest_{stream}", hour))
        except (WrongUse, ServiceUnreachable) as error:
            return [f"Airflow was not asked: {error}"]


def _notes(api: AirflowApi, dag: str, hour: Hour) -> Iterator[str]:
    found = api.find(f"/api/v2/dags/{dag}")
    if found is None:
        yield f"Airflow has no DAG {dag}: look for import errors on its page"
        return
    if found["is_paused"]:
        yield f"the DAG {dag} is paused: nothing is scheduled until it is not (airflow dags unpause {dag})"
    start = isoformat(hour.start_ms)
    runs = api.get(f"/api/v2/dags/{dag}/dagRuns", logical_date_gte=start, logical_date_lte=start)["dag_runs"]
    if not runs:
        yield (
            f"Airflow never scheduled a run of {dag} for this hour; a later hour's run brings it too, or: "
            f'airflow dags trigger {dag} --conf \'{{"hour": "{hour}"}}\''
        )
    for run in runs:
        yield f"the run {run['dag_run_id']} is {run['state']}"
        path = f"/api/v2/dags/{dag}/dagRuns/{run['dag_run_id']}/taskInstances"
        for task in api.get(path)["task_instances"]:
            if task["state"] in _WORKING:
                yield f"its task {task['task_id']} is {task['state']}, try {task['try_number']}"
