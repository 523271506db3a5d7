"""Airflow as the demo sees it: its command line to start a backfill, its API to watch it."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.airflow import AirflowApi
from tidemark.errors import TidemarkError
from tidemark.names import Hour, isoformat

_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    dag: str
    run: str
    hour: Hour
    task: str
    state: str
    attempt: int


class AirflowClient(AirflowApi):
    def __init__(self, address: str, user: str, password: str, environment: Mapping[str, str]) -> None:
        super().__init__(address, user, password)
        self._environment = environment

    def wait_for_dags(self, dags: tuple[str, ...], *, within_s: float = 120) -> None:
        deadline = time.monotonic() + within_s
        missing = set(dags)
        while missing:
            missing = {dag for dag in missing if self._request("GET", f"/api/v2/dags/{dag}").status_code != 200}
            if missing and time.monotonic() > deadline:
                errors = self.get("/api/v2/importErrors")["import_errors"]
                told = "; ".join(error["stack_trace"].strip().splitlines()[-1] for error in errors)
                raise TidemarkError(f"Cannot find {', '.join(sorted(missing))} in Airflow: {told or 'no error told'}")
            time.sleep(0.5)

    def unpause(self, dag: str) -> None:
        self._request("PATCH", f"/api/v2/dags/{dag}", json={"is_paused": False}).raise_for_status()

    def backfill(self, dag: str, hours: Sequence[Hour], *options: str, reprocess: str = "failed") -> None:
        """Ask for the hours, first to last unless the options say otherwise, with Airflow's own command.

        Airflow on SQLite loses the race of two writers now and then, and leaves half a backfill behind: that one is
        cancelled and asked for again.
        """
        for _ in range(_TRIES):
            command = [*backfill_command(dag, hours, reprocess), *options]
            done = subprocess.run(command, env=dict(self._environment), capture_output=True, text=True, check=False)
            if not done.returncode:
                return
            if "database is locked" not in done.stdout + done.stderr:
                break
            self._cancel_backfills(dag)
        raise TidemarkError(f"Cannot start the backfill of {dag}: {(done.stderr or done.stdout)[-2000:]}")

    def open_backfills(self, dag: str) -> list[int]:
        """Airflow takes a DAG's next backfill only when there is none, and closes one well after its last run."""
        found = self.get("/api/v2/backfills", dag_id=dag)["backfills"]
        return [backfill["id"] for backfill in found if not backfill["completed_at"]]

    def _cancel_backfills(self, dag: str) -> None:
        for backfill in self.open_backfills(dag):
            self._request("PUT", f"/api/v2/backfills/{backfill}/cancel")

    def tasks(self, dag: str) -> list[TaskView]:
        runs = self.rows(f"/api/v2/dags/{dag}/dagRuns", "dag_runs")
        hours = {run["dag_run_id"]: Hour.parse(run["logical_date"][:13]) for run in runs if run["logical_date"]}
        found = self.rows(f"/api/v2/dags/{dag}/dagRuns/~/taskInstances", "task_instances")
        return [
            TaskView(
                dag=dag,
                run=row["dag_run_id"],
                hour=hours[row["dag_run_id"]],
                task=row["task_id"],
                state=row["state"] or "waiting",
                attempt=row["try_number"],
            )
            for row in found
            if row["dag_run_id"] in hours
        ]

    def log_tail(self, task: TaskView, lines: int = 30) -> str:
        path = f"/api/v2/dags/{task.dag}/dagRuns/{task.run}/taskInstances/{task.task}/logs/{task.attempt}"
        content = self.get(path, full_content="true")["content"]
        return "\n".join("\n".join(map(_text_of, content)).splitlines()[-lines:])


def is_done(task: TaskView) -> bool:
    """Skipped is what has nothing to say, such as `announce` when another run's has said it."""
    return task.state in ("success", "skipped")


def backfill_command(dag: str, hours: Sequence[Hour], reprocess: str = "failed") -> list[str]:
    return [
        "airflow", "backfill", "create", "--dag-id", dag,
        "--from-date", isoformat(hours[0].start_ms), "--to-date", isoformat(hours[-1].start_ms),
        "--max-active-runs", str(len(hours)), "--reprocess-behavior", reprocess,
    ]  # fmt: skip


def _text_of(entry: Mapping[str, Any] | str) -> str:
    if isinstance(entry, str):
        return entry
    causes = [f"{cause['exc_type']}: {cause['exc_value']}" for cause in entry.get("error_detail") or ()]
    return "\n".join([str(entry["event"]), *causes])
