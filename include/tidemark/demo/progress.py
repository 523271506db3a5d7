"""What the demo shows: the live table hour by stage, and the table at its end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tidemark.demo.airflow import TaskView
from tidemark.names import Hour

STAGES = ("plan", "consume", "archive", "publish", "announce")
_MARKS = {
    "success": "[green]done[/]",
    "skipped": "[green]done[/]",
    "running": "[yellow]running[/]",
    "deferred": "[cyan]deferred[/]",
    "queued": "queued",
    "scheduled": "queued",
    "up_for_retry": "[red]will retry[/]",
    "failed": "[bold red]failed[/]",
    "upstream_failed": "[red]upstream failed[/]",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HourSummary:
    stream: str
    hour: Hour
    files: int
    lines: int
    bytes: int
    flag: str


class Progress:
    """A live table on a terminal, elsewhere one line for each change."""

    def __init__(self, console: Console, asked: Mapping[str, Sequence[Hour]]) -> None:
        self._console = console
        self._asked = asked
        self._live = Live(console=console, refresh_per_second=4) if console.is_terminal else None
        self._told: dict[tuple[str, Hour, str], str] = {}

    def __enter__(self) -> "Progress":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, tasks: Iterable[TaskView]) -> None:
        states = {(task.dag, task.hour, task.task): task.state for task in tasks}
        if self._live:
            self._live.update(self._table(states))
            return
        for key, state in states.items():
            if self._told.get(key) != state and state in ("success", "failed", "up_for_retry", "running"):
                dag, hour, task = key
                self._console.print(f"  {dag} {hour} {task}: {'done' if state == 'success' else state}")
            self._told[key] = state

    def _table(self, states: dict[tuple[str, Hour, str], str]) -> Table:
        table = Table("DAG", "hour (UTC)", *STAGES, title="Airflow at work")
        for dag, hours in self._asked.items():
            tasks = STAGES if dag.startswith("ingest_") else ("wait", "count")
            for hour in hours:
                cells = [f"{_name(task)}{_mark(states.get((dag, hour, task)))}" for task in tasks]
                table.add_row(dag, str(hour), *cells)
            table.add_section()
        return table


def show_summary(console: Console, rows: Sequence[HourSummary]) -> None:
    table = Table(title="Hours that are ready")
    for column in ("stream", "hour (UTC)"):
        table.add_column(column, no_wrap=True)
    for column in ("files", "lines", "bytes"):
        table.add_column(column, justify="right")
    table.add_column("flag", no_wrap=True)
    for row in rows:
        table.add_row(
            row.stream,
            str(row.hour),
            f"{row.files:,}",
            f"{row.lines:,}",
            f"{row.bytes:,}",
            row.flag,
        )
    table.add_section()
    table.add_row(
        "all",
        "",
        f"{sum(row.files for row in rows):,}",
        f"{sum(row.lines for row in rows):,}",
        f"{sum(row.bytes for row in rows):,}",
    )
    console.print(table)


def _mark(state: str | None) -> str:
    return _MARKS.get(state or "", "[dim]·[/]")


def _name(task: str) -> str:
    return "" if task in STAGES else f"{task}: "
