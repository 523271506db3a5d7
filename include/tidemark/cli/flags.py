"""`tidemark flags`: which hours are ready, and letting one be in spite of its gaps."""

from itertools import dropwhile
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from tidemark.cli.confirm import confirm
from tidemark.cli.default_command import ShowsByDefault
from tidemark.cli.output import print_json, print_table
from tidemark.cli.progress import progress
from tidemark.cli.words import AsJson, HourName, StreamName, Yes
from tidemark.environment import connection_from_environment, streams_file
from tidemark.errors import WrongUse

if TYPE_CHECKING:
    from tidemark.inspect.flags import HourFlag

app = typer.Typer(
    cls=ShowsByDefault,
    short_help="Which hours are ready; accept a gap, replay missed events.",
    help="Which hours are ready: `tidemark flags STREAM [DAY]`.",
    no_args_is_help=True,
    subcommand_metavar="STREAM | COMMAND [ARGS]…",
)


@app.command()
def show(
    stream: StreamName,
    day: Annotated[
        str | None,
        typer.Argument(metavar="DAY", help="UTC: 2026-11-15; without it the last 24 hours."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Of each hour its revision and size, or why it has no flag.

    Lines, files and bytes are those that the newest flag names. Changes nothing.
    """
    from tidemark.config import load_stream
    from tidemark.drive.services import now_ms
    from tidemark.inspect.flags import view_flags
    from tidemark.ledger.zookeeper import open_session
    from tidemark.names import HOUR_MS, Day, Hour, hours_of_day
    from tidemark.storage import open_storage

    configured = load_stream(streams_file(), stream)
    now = now_ms()
    last = [Hour(Hour.of(now).start_ms - back * HOUR_MS) for back in range(24, 0, -1)]
    hours = hours_of_day(str(Day(day))) if day else tuple(last)
    storage = open_storage(configured.root, connection_from_environment)
    with progress(f"Reading the flags of {stream}"), open_session(connection_from_environment) as client:
        found = view_flags(client, stream, hours, storage, now)
    if not day:
        found = list(dropwhile(_is_before_start, found)) or found[-1:]
    if as_json:
        print_json([_as_json(row) for row in found])
    else:
        print_table(_table(found))


@app.command()
def accept(
    stream: StreamName,
    hour: HourName,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it is written into the hour's flag.")],
    yes: Yes = False,
) -> None:
    """Let an hour be published in spite of its gaps.

    Its flag will name them, and the reason. Exit code 1 when the answer is no.
    """
    from tidemark.config import load_stream
    from tidemark.drive.acts import accept_hour
    from tidemark.ledger.stream import StreamLedger
    from tidemark.ledger.zookeeper import open_session
    from tidemark.names import Hour, Task

    configured = load_stream(streams_file(), stream)
    wanted = Hour.parse(hour)
    if not reason.strip():
        raise WrongUse(f"Cannot accept {stream}/{wanted}: found an empty reason, wanted one that others understand")
    with progress(f"Looking at {stream}/{wanted}"), open_session(connection_from_environment) as client:
        gaps = [gap for gap in StreamLedger(client, stream).hour(wanted).value.gaps if gap.accepted is None]
    for gap in gaps:
        others = f", and {gap.more} further gaps" if gap.more else ""
        typer.echo(
            f"{stream}/{wanted} is published without offsets [{gap.start}, {gap.end}) of shard {gap.shard}{others}."
        )
    if gaps:
        confirm(f"Accept {stream}/{wanted}?", yes=yes)
    task = Task(name=f"tidemark flags accept {stream} {wanted}", attempt=1)
    with progress(f"Accepting {stream}/{wanted}"):
        act = accept_hour(configured, wanted, reason, connection_from_environment, task)
    typer.echo(f"{stream}/{wanted} is held by no gap any more: {act}. The next publish task writes its flag.")


@app.command()
def replay(
    dag: Annotated[str, typer.Argument(metavar="DAG", help="One that is scheduled by Tidemark's assets.")],
    days: Annotated[int, typer.Option(metavar="N", min=1, help="How many days back, with today.")] = 7,
    yes: Yes = False,
) -> None:
    """Run a DAG for the hours or days that it missed while paused.

    Those whose events it missed, and no other DAG. Asks Airflow (connection airflow_api). Exit code 1 when the answer
    is no.
    """
    from datetime import UTC, datetime, timedelta

    from tidemark.airflow import AirflowApi
    from tidemark.drive.replay import find_missed, start_runs

    now = datetime.now(UTC)
    with progress("Asking Airflow"):
        api = AirflowApi.connect(connection_from_environment)
        missed = find_missed(api, dag, now - timedelta(days=days), now)
    for one in missed:
        typer.echo(f"{dag} missed {one.key}.")
    if not missed:
        typer.echo(f"{dag} missed nothing in {days} days.")
        return
    confirm(f"Run {dag} for {len(missed)} keys?", yes=yes)
    with progress(f"Starting runs of {dag}"):
        started = start_runs(api, dag, missed)
    typer.echo(f"{len(started)} runs of {dag} are queued.")


def _is_before_start(row: "HourFlag") -> bool:
    from tidemark.publish.rule import Cause

    return any(reason.cause is Cause.BEFORE_START for reason in row.reasons)


def _as_json(row: "HourFlag") -> dict[str, Any]:
    return {
        "hour": str(row.hour),
        "revision": row.revision,
        "published": row.published,
        "lines": row.lines,
        "files": row.files,
        "bytes": row.bytes,
        "reasons": [reason.text for reason in row.reasons],
    }


def _table(rows: "list[HourFlag]") -> Table:
    table = Table("hour (UTC)", box=None)
    for heading in ("revision", "lines", "files", "bytes"):
        table.add_column(heading, justify="right")
    table.add_column("published, or why not")
    for row in rows:
        first, more = (row.reasons[0].text if row.reasons else "", len(row.reasons) - 1)
        held = f"{first} (and {more} more)" if more > 0 else first
        numbers = (f"{row.lines:,}", f"{row.files:,}", f"{row.bytes:,}") if row.revision else ("", "", "")
        revision = str(row.revision) if row.revision else "-"
        table.add_row(str(row.hour), revision, *numbers, row.published or held or "the next publish task writes it")
    return table
