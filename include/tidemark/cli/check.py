"""`tidemark check`: a probe for cron or Nagios."""

import json
from typing import Annotated

import typer

from tidemark.environment import connection_from_environment, streams_file


def check(
    streams: Annotated[list[str] | None, typer.Argument(metavar="[STREAM]…", help="All that are configured.")] = None,
    days: Annotated[int, typer.Option(min=1, max=92, help="How many days back, with today.")] = 2,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Say whether every hour is ready that should be; needs ZooKeeper only, and no Airflow.

    An hour should be ready one hour after its grace. Exit code 0 when all is well, 1 when somebody should look.
    """
    from tidemark.config import load_stream, load_streams
    from tidemark.drive.services import now_ms
    from tidemark.errors import WrongUse
    from tidemark.inspect.board import Board
    from tidemark.inspect.check import check_streams
    from tidemark.ledger.zookeeper import open_session

    file = streams_file()
    asked = [load_stream(file, name) for name in streams or load_streams(file).streams]
    if not asked:
        raise WrongUse(f"Cannot check: {file} has no sound stream")
    with open_session(connection_from_environment) as client:
        found = check_streams(Board(client, connection_from_environment), asked, days, now_ms())
    # What is wrong comes first: Nagios shows one line.
    found = sorted(found, key=lambda row: row.is_well)
    typer.echo(
        json.dumps([row.as_json() for row in found], indent=2) if as_json else "\n".join(row.line() for row in found)
    )
    raise typer.Exit(0 if all(row.is_well for row in found) else 1)
