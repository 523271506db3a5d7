"""`tidemark retain`: remove days that are older than a stream keeps them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemark.cli.confirm import confirm
from tidemark.cli.output import print_json
from tidemark.cli.progress import progress
from tidemark.cli.words import AsJson, StreamName, Yes
from tidemark.environment import connection_from_environment, streams_file
from tidemark.errors import WrongUse

if TYPE_CHECKING:
    from tidemark.config import Stream
    from tidemark.drive.retain import Listed
    from tidemark.names import Task


def retain(
    stream: StreamName,
    execute: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Remove what the list with this token has.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Days that are not ready, too.")] = False,
    as_json: AsJson = False,
    yes: Yes = False,
) -> None:
    """List, and remove, days that are older than a stream keeps.

    The list comes with a token; `--execute TOKEN` removes exactly those days, flags first. `tidemark flags` goes on to
    say that their hours are expired. Exit code 1 when the answer is no.
    """
    from tidemark.config import load_stream
    from tidemark.names import Task

    if execute is not None and as_json:
        raise WrongUse("Cannot use both --execute and --json: only the list is JSON")
    configured = load_stream(streams_file(), stream)
    task = Task(name=f"tidemark retain {stream}", attempt=1)
    if execute is not None:
        _remove(configured, execute, task, force=force, yes=yes)
    else:
        _list(configured, task, force=force, as_json=as_json)


def _list(stream: "Stream", task: "Task", *, force: bool, as_json: bool) -> None:
    from tidemark.drive.retain import list_old_days

    with progress(f"Listing the old days of {stream.name}"):
        listed = list_old_days(stream, connection_from_environment, task, force=force)
    if as_json:
        print_json(_as_json(listed, force))
        return
    for old in listed.days:
        going = force or old.held is None
        typer.echo(f"{old.day} {'would be removed' if going else f'stays: {old.held} (--force)'}")
    if listed.token:
        typer.echo(f"tidemark retain {stream.name} --execute {listed.token}{' --force' if force else ''}")
    else:
        typer.echo("There is nothing to remove.")


def _remove(stream: "Stream", token: str, task: "Task", *, force: bool, yes: bool) -> None:
    from tidemark.drive.retain import find_listed_days, remove_old_days

    with progress(f"Looking for the list of {stream.name}"):
        days = find_listed_days(stream, token, connection_from_environment)
    typer.echo(f"To be removed from {stream.root}, with flags and files: {', '.join(str(day) for day in days)}")
    confirm(f"Remove {len(days)} days of {stream.name}?", yes=yes)
    with progress(f"Removing days of {stream.name}") as bar:
        removed = remove_old_days(
            stream, token, connection_from_environment, task, force=force, on_day=lambda _: bar.advance(len(days))
        )
    for day in removed:
        typer.echo(f"{stream.name}/{day} is removed")


def _as_json(listed: "Listed", force: bool) -> dict[str, Any]:
    days = [{"day": str(old.day), "held": old.held, "goes": force or old.held is None} for old in listed.days]
    return {"token": listed.token, "days": days}
