"""Catch up a consumer that missed events: Airflow forgets a paused DAG when it hands them out."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemark.airflow import AirflowApi
from tidemark.errors import WrongUse

SETTLING = timedelta(minutes=1)
"""Airflow starts the runs of an event by itself within this time, unless the DAG is paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """An hour or day with an event that is newer than every run for it."""

    key: str
    event: int

    @property
    def run(self) -> str:
        """One name for each event, so that two replays at a time start one run."""
        return f"replay__{self.key}__{self.event}"


def find_missed(api: AirflowApi, dag: str, since: datetime, now: datetime) -> list[Missed]:
    """By key. A DAG that waits for several assets missed those keys of which each asset has an event."""
    found = api.find(f"/api/v2/dags/{dag}")
    if found is None:
        raise WrongUse(f"Cannot replay {dag}: Airflow has no such DAG")
    assets = [
        asset
        for asset in api.rows("/api/v2/assets", "assets", dag_ids=dag)
        if dag in {scheduled["dag_id"] for scheduled in asset["scheduled_dags"]}
    ]
    if not assets:
        raise WrongUse(f"Cannot replay {dag}: no asset schedules it")
    latest = now if found["is_paused"] else now - SETTLING
    events = [_newest_events(api, asset["id"], since, latest) for asset in assets]
    runs = _newest_runs(api.rows(f"/api/v2/dags/{dag}/dagRuns", "dag_runs", run_after_gte=since.isoformat()))
    missed = []
    for key in sorted(set.intersection(*(set(of_asset) for of_asset in events))):
        sent, event = max(of_asset[key] for of_asset in events)
        if key not in runs or runs[key] < sent:
            missed.append(Missed(key=key, event=event))
    return missed


def start_runs(api: AirflowApi, dag: str, missed: Iterable[Missed]) -> list[str]:
    """Start a run of this DAG alone for each key; return the keys for which nobody else did."""
    return [one.key for one in missed if api.start_run(dag, one.run, one.key, "tidemark flags replay")]


def _newest_events(api: AirflowApi, asset: int, since: datetime, latest: datetime) -> dict[str, tuple[datetime, int]]:
    """Time and id of the newest event of each key."""
    rows = api.rows(
        "/api/v2/assets/events",
        "asset_events",
        asset_id=asset,
        timestamp_gte=since.isoformat(),
        timestamp_lte=latest.isoformat(),
        order_by="timestamp",
    )
    return {row["partition_key"]: (_time(row["timestamp"]), row["id"]) for row in rows if row["partition_key"]}


def _newest_runs(rows: Iterable[dict[str, str | None]]) -> dict[str, datetime]:
    newest: dict[str, datetime] = {}
    for row in rows:
        key, when = row["partition_key"], row["queued_at"] or row["run_after"]
        if key and when:
            newest[key] = max(_time(when), newest.get(key, _time(when)))
    return newest


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
