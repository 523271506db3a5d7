"""`tidemark check`: a probe for cron or Nagios."""

import typer

from tidemark.cli.output import print_json
from tidemark.cli.progress import progress
from tidemark.cli.words import AsJson, StreamNames
from tidemark.environment import connection_from_environment, streams_file


def check(streams: StreamNames = None, as_json: AsJson = False) -> None:
    """Probe for cron or Nagios: is every hour ready that should be?

    An hour, however old, should be ready `ready_within` after its end, else its grace and one hour after it. Needs
    ZooKeeper only, and no Airflow. Exit code 0 when all is well, 1 when somebody should look.
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
    with progress(f"Looking at {len(asked)} streams"), open_session(connection_from_environment) as client:
        found = check_streams(Board(client, connection_from_environment), asked, now_ms())
    # What is wrong comes first: Nagios shows one line.
    found = sorted(found, key=lambda row: row.is_well)
    if as_json:
        print_json([row.as_json() for row in found])
    else:
        typer.echo("\n".join(row.line() for row in found))
    raise typer.Exit(0 if all(row.is_well for row in found) else 1)
