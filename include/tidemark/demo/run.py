"""The demo itself: stack, sample lines, backfill, flags."""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tidemark import layout
from tidemark.config import Stream, load_streams
from tidemark.demo.airflow import AirflowClient, TaskView, backfill_command, is_done
from tidemark.demo.progress import HourSummary, Progress, show_summary
from tidemark.demo.sample import create_topic, produce, sample_hour
from tidemark.drive.services import now_ms
from tidemark.environment import Connection, Connections, parse_connection, streams_file, variable_of
from tidemark.errors import DataLoss, TidemarkError
from tidemark.names import HOUR_MS, Hour, duration_ms
from tidemark.publish.flag import read_hour_flag
from tidemark.stack import Stack
from tidemark.storage import open_storage

HOURS = 3
PATIENCE_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    partitions: int
    lines_an_hour: int


SAMPLES = {
    "clicks": Sample(partitions=4, lines_an_hour=20_000),
    "payments": Sample(partitions=2, lines_an_hour=5_000),
}
EXAMPLE = "example_count_lines"
# A run that is planned before the sample lines are there would find them late.
DAGS_PAUSED = {"AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True"}


def run_demo(home: Path, *, keep: bool, console: Console) -> None:
    """Always begins from nothing: an earlier demo's stack below `home` is ended and removed."""
    begin = time.monotonic()
    stack = Stack(home)

    def tell(step: str) -> None:
        console.print(f"  {step}", highlight=False)

    if home.exists():
        stack.down(on_step=tell)
        shutil.rmtree(home)
    try:
        console.rule("1. The stack")
        stack.up(extra_environment=DAGS_PAUSED, on_step=tell)
        _run_on(stack, console)
        console.print(f"[green]Done in {time.monotonic() - begin:.0f} s.[/]")
        _say_goodbye(stack, keep=keep, console=console)
    finally:
        if not keep:
            stack.down()


def _run_on(stack: Stack, console: Console) -> None:
    environment = stack.environment()

    def connections(conn_id: str) -> Connection:
        return parse_connection(conn_id, environment[variable_of(conn_id)])

    streams = load_streams(streams_file()).streams
    wanted = {name: streams[name] for name in SAMPLES}
    hours = _hours(wanted)
    console.rule("2. Sample log lines")
    expected = _produce(wanted, hours, connections, console)
    console.rule("3. Airflow runs the hours: plan, consume, archive, publish")
    _backfill(stack, {**{f"ingest_{name}": hours for name in wanted}, EXAMPLE: hours[-1:]}, console)
    console.rule("4. What is there now")
    rows = _summaries(wanted, hours, connections)
    show_summary(console, rows)
    _check(rows, expected)
    for stream in wanted.values():
        console.print(f"  Files of {stream.name}: {stream.root}", highlight=False)


def _hours(streams: dict[str, Stream]) -> list[Hour]:
    """The last full hours whose grace has passed: no run of the demo has to wait for the clock."""
    grace = max(duration_ms(stream.grace) for stream in streams.values())
    now = Hour.of(now_ms() - grace - 1000)
    return [Hour(now.start_ms - back * HOUR_MS) for back in range(HOURS, 0, -1)]


def _produce(
    streams: dict[str, Stream], hours: Sequence[Hour], connections: Connections, console: Console
) -> dict[str, int]:
    produced: dict[str, int] = {}
    for name, stream in streams.items():
        sample, connection = SAMPLES[name], connections(stream.kafka_connection)
        create_topic(connection, stream.topic, sample.partitions)
        produced[name] = sum(
            produce(
                connection,
                stream.topic,
                sample_hour(stream.topic, hour, partitions=sample.partitions, lines=sample.lines_an_hour),
            )
            for hour in hours
        )
        console.print(
            f"  topic {stream.topic}, {sample.partitions} partitions: {produced[name]:,} lines, "
            f"{hours[0]} to {hours[-1]}",
            highlight=False,
        )
    return produced


def _backfill(stack: Stack, asked: Mapping[str, Sequence[Hour]], console: Console) -> None:
    login = stack.login()
    airflow = AirflowClient(login.address, login.user, login.password, stack.environment())
    console.print("  waiting until Airflow has read the DAGs")
    airflow.wait_for_dags(tuple(asked))
    for dag, hours in asked.items():
        console.print(f"  {' '.join(backfill_command(dag, hours))}", highlight=False, soft_wrap=True)
        airflow.backfill(dag, hours)
    for dag in asked:
        airflow.unpause(dag)
    with Progress(console, asked) as progress:
        _watch(airflow, asked, progress)


def _watch(airflow: AirflowClient, asked: Mapping[str, Sequence[Hour]], progress: Progress) -> None:
    deadline = time.monotonic() + PATIENCE_S
    wanted = {(dag, hour) for dag, hours in asked.items() for hour in hours}
    while True:
        tasks = [task for dag in asked for task in airflow.tasks(dag) if (dag, task.hour) in wanted]
        progress.show(tasks)
        for task in tasks:
            if task.state == "failed":
                raise TidemarkError(_explain(airflow, task))
        if {(task.dag, task.hour) for task in tasks} == wanted and all(is_done(task) for task in tasks):
            return
        if time.monotonic() > deadline:
            raise TidemarkError(f"The hours were not done within {PATIENCE_S:.0f} s; the table shows how far they came")
        time.sleep(1)


def _explain(airflow: AirflowClient, task: TaskView) -> str:
    return f"The task {task.task} of {task.dag} failed for {task.hour}. The end of its log:\n{airflow.log_tail(task)}"


def _summaries(streams: dict[str, Stream], hours: Sequence[Hour], connections: Connections) -> list[HourSummary]:
    rows: list[HourSummary] = []
    for stream in streams.values():
        storage = open_storage(stream.root, connections)
        for hour in hours:
            flag = read_hour_flag(storage, hour, 1)
            rows.append(
                HourSummary(
                    stream=stream.name,
                    hour=hour,
                    files=len(flag["files"]),
                    lines=flag["counts"]["lines"],
                    bytes=sum(file["bytes"] for file in flag["files"]),
                    flag=layout.hour_flag(hour, 1),
                )
            )
    return rows


def _check(rows: Sequence[HourSummary], expected: dict[str, int]) -> None:
    for name, lines in expected.items():
        found = sum(row.lines for row in rows if row.stream == name)
        if found != lines:
            raise DataLoss(f"The flags of {name} count {found:,} lines, {lines:,} were produced")


def _say_goodbye(stack: Stack, *, keep: bool, console: Console) -> None:
    login = stack.login()
    if keep:
        console.print(
            f"Airflow: {login.address}  user {login.user}  password {login.password}", highlight=False, soft_wrap=True
        )
        console.print(
            f'Talk to the stack: export TIDEMARK_HOME={stack.home}; eval "$(.venv/bin/tidemark stack env)"',
            highlight=False,
            soft_wrap=True,
        )
        console.print("End it: make down")
    else:
        console.print(
            f"The Airflow UI was at {login.address}, user {login.user}, password {login.password}: "
            "`make demo KEEP=1` leaves it running.",
            highlight=False,
            soft_wrap=True,
        )
