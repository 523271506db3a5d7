"""`tidemark streams`: what is configured, and whether the living services bear it."""

from itertools import groupby
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from tidemark.cli.default_command import ShowsByDefault
from tidemark.cli.output import print_json, print_table
from tidemark.cli.progress import progress
from tidemark.cli.words import AsJson, StreamNames
from tidemark.environment import connection_from_environment, streams_file

if TYPE_CHECKING:
    from tidemark.inspect.streams import Check

app = typer.Typer(
    cls=ShowsByDefault,
    short_help="The configured streams; check them against the services.",
    help="The configured streams: `tidemark streams`.",
    subcommand_metavar="[COMMAND] [ARGS]…",
)


@app.command()
def show(as_json: AsJson = False) -> None:
    """The streams that are configured, with topic, root and owner.

    Asks no service. Exit code 1 when the configuration has an error, which is told.
    """
    from tidemark.config import load_streams

    loaded = load_streams(streams_file())
    rows = [
        {"stream": one.name, "cluster": one.cluster, "topic": one.topic, "root": one.root, "owner": one.owner}
        for one in loaded.streams.values()
    ]
    if as_json:
        print_json(rows)
    else:
        table = Table("stream", "cluster", "topic", "root", "owner", box=None)
        for row in rows:
            table.add_row(*row.values())
        print_table(table)
    for error in loaded.errors:
        typer.echo(error, err=True)
    if loaded.errors:
        raise typer.Exit(1)


@app.command()
def check(streams: StreamNames = None, as_json: AsJson = False) -> None:
    """Check the configuration against the living services.

    Topics exist, can be read and keep records longer than the longest hour that is open; roots take files (one is
    written below _tmp and removed) and have space for a day; ZooKeeper can be written. Exit code 0 when all is well, 1
    when something is wrong, 3 when nothing is wrong as far as could be asked, but a service is not reachable.
    """
    from tidemark.config import load_stream, load_streams
    from tidemark.drive.services import now_ms
    from tidemark.inspect.streams import Check, Verdict, check_streams

    file = streams_file()
    loaded = load_streams(file)
    asked = [load_stream(file, name) for name in streams or loaded.streams]
    # Of streams that were not asked for nothing is told.
    errors = () if streams else loaded.errors
    found = [Check(stream=None, subject="configuration", verdict=Verdict.WRONG, found=error) for error in errors]
    with progress(f"Checking {len(asked)} streams") as bar:
        found += check_streams(asked, connection_from_environment, now_ms(), on_stream=bar.advance)
    if as_json:
        print_json([row.as_json() for row in found])
    else:
        _print(found)
    verdicts = {row.verdict for row in found}
    raise typer.Exit(1 if Verdict.WRONG in verdicts else 3 if Verdict.UNREACHABLE in verdicts else 0)


def _print(found: "list[Check]") -> None:
    for stream, rows in groupby(found, key=lambda row: row.stream):
        typer.echo(stream or "all streams")
        for row in rows:
            mark = row.verdict if row.verdict == "ok" else row.verdict.upper()
            wanted = f"; wanted {row.wanted}" if row.wanted and row.verdict == "wrong" else ""
            typer.echo(f"  {mark:13}{row.subject:15}{row.found}{wanted}")
