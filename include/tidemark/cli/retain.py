"""`tidemark retain`: remove days that are older than a stream keeps them."""

from typing import Annotated

import typer

from tidemark.environment import connection_from_environment, streams_file


def retain(
    stream: Annotated[str, typer.Argument()],
    execute: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Remove what the list with this token has.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Days that are not ready, too.")] = False,
) -> None:
    """List the days that are older than the stream's `retain`, with a token; `--execute TOKEN` removes exactly those.

    Flags go first. `tidemark flags` goes on to say that the hours are expired.
    """
    from tidemark.config import load_stream
    from tidemark.drive.retain import list_old_days, remove_old_days
    from tidemark.names import Task

    configured = load_stream(streams_file(), stream)
    task = Task(name=f"tidemark retain {stream}", attempt=1)
    if execute is not None:
        for day in remove_old_days(configured, execute, connection_from_environment, task, force=force):
            typer.echo(f"{stream}/{day} is removed")
        return
    listed = list_old_days(configured, connection_from_environment, task, force=force)
    for old in listed.days:
        going = force or old.held is None
        typer.echo(f"{old.day} {'would be removed' if going else f'stays: {old.held} (--force)'}")
    if listed.token:
        typer.echo(f"tidemark retain {stream} --execute {listed.token}{' --force' if force else ''}")
    else:
        typer.echo("There is nothing to remove.")
