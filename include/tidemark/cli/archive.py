"""`tidemark archive`: whether what is archived is whole, and doing something about it."""

from typing import TYPE_CHECKING

import typer

from tidemark.cli.confirm import confirm
from tidemark.cli.output import print_json
from tidemark.cli.progress import progress
from tidemark.cli.words import AsJson, DayName, StreamName, Yes
from tidemark.environment import connection_from_environment, streams_file

if TYPE_CHECKING:
    from tidemark.config import Stream
    from tidemark.drive.archive import Checked
    from tidemark.names import Day

app = typer.Typer(help="Check the archive of a stream, and repair it.", no_args_is_help=True)


@app.command()
def check(stream: StreamName, day: DayName = None, as_json: AsJson = False) -> None:
    """Compare every archived byte with index and manifests.

    Changes nothing. Exit code 0 when all is as it should be, 1 when not.
    """
    found = _check(*_parse(stream, day))
    to_do, to_know = _to_do(found), _to_know(found)
    if as_json:
        print_json({"stream": stream, "hours": len(found.surveys), "to_repair": to_do, "to_know": to_know})
    else:
        told = [*to_do, *to_know]
        typer.echo(
            "\n".join([*told, f"{len(found.surveys)} hours: {f'{len(told)} findings' if told else 'nothing is wrong'}"])
        )
    if to_do or to_know:
        raise typer.Exit(1)


@app.command()
def repair(stream: StreamName, day: DayName = None, yes: Yes = False) -> None:
    """Do what `check` finds to be done, in this process.

    What a flag names and what no manifest names stays as it is. Exit code 1 when the answer is no, or when another
    worker holds one of the hours.
    """
    from tidemark.drive.archive import repair_archive
    from tidemark.names import Task

    configured, wanted = _parse(stream, day)
    to_do = _to_do(_check(configured, wanted))
    for line in to_do:
        typer.echo(line)
    if not to_do:
        typer.echo("There is nothing to repair.")
        return
    confirm(f"Do this in {stream}?", yes=yes)
    task = Task(name=f"tidemark archive repair {stream}", attempt=1)
    with progress(f"Repairing the archive of {stream}"):
        busy = repair_archive(configured, wanted, connection_from_environment, task)
    for hour in busy:
        typer.echo(f"{stream}/{hour} is left: another worker holds it")
    if busy:
        raise typer.Exit(1)
    typer.echo("Done. What was given up is a gap of its hour: see `tidemark why`.")


def _parse(stream: str, day: str | None) -> "tuple[Stream, Day | None]":
    from tidemark.config import load_stream
    from tidemark.names import Day

    return load_stream(streams_file(), stream), Day(day) if day else None


def _check(stream: "Stream", day: "Day | None") -> "Checked":
    from tidemark.drive.archive import check_archive

    with progress(f"Reading the archive of {stream.name}") as bar:
        return check_archive(stream, day, connection_from_environment, on_hour=bar.advance)


def _to_do(found: "Checked") -> list[str]:
    lines = [f"{hour}: archive {plan.number} was begun: finish it" for hour, plan in found.open_plans.items()]
    for survey in found.surveys:
        lines += [
            f"{survey.hour}: {path}: {reason}: void it, archive its sources again"
            for path, reason in survey.lost.items()
        ]
        if survey.hour not in found.open_plans:
            lines += [f"{survey.hour}: {path}: an archive holds it: delete it" for path in survey.leftovers]
            lines += [f"{survey.hour}: lines of shift {number} wait: archive them" for number in survey.waiting]
    return [*lines, *(f"{path}: no work names it: delete it" for path in found.leftovers)]


def _to_know(found: "Checked") -> list[str]:
    lost = [f"{hour}: {why}: restore it from elsewhere" for hour, why in found.without_index.items()]
    return lost + [
        line
        for survey in found.surveys
        for line in (
            *(f"{survey.hour}: {path}: {why}: a flag names it, it is left alone" for path, why in survey.kept.items()),
            *(f"{survey.hour}: {path}: no manifest names it, it is left alone" for path in survey.unnamed),
        )
    ]
