"""`tidemark archive`: whether what is archived is whole, and doing something about it."""

from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.cli.confirm import confirm
from tidemark.environment import connection_from_environment, streams_file

if TYPE_CHECKING:
    from tidemark.drive.archive import Checked

app = typer.Typer(help="Check and repair the archive of a stream.", no_args_is_help=True)

StreamName = Annotated[str, typer.Argument(metavar="STREAM")]
DayName = Annotated[str | None, typer.Argument(metavar="[DAY]", help="UTC: 2026-11-15; without it every day.")]


@app.command()
def check(stream: StreamName, day: DayName = None) -> None:
    """Read every archived byte and compare it with index and manifests. Changes nothing.

    Exit code 0 when all is as it should be, 1 when not.
    """
    from tidemark.config import load_stream
    from tidemark.drive.archive import check_archive
    from tidemark.names import Day

    found = check_archive(load_stream(streams_file(), stream), Day(day) if day else None, connection_from_environment)
    told = [*_to_do(found), *_to_know(found)]
    for line in told:
        typer.echo(line)
    typer.echo(f"{len(found.surveys)} hours: {f'{len(told)} findings' if told else 'nothing is wrong'}")
    if told:
        raise typer.Exit(1)


@app.command()
def repair(
    stream: StreamName,
    day: DayName = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Do what `check` finds to be done, in this process. What a flag names and what no manifest names stays as it is.

    Exit code 1 when the answer is no, or when another worker holds one of the hours.
    """
    from tidemark.config import load_stream
    from tidemark.drive.archive import check_archive, repair_archive
    from tidemark.names import Day, Task

    configured, wanted = load_stream(streams_file(), stream), Day(day) if day else None
    to_do = _to_do(check_archive(configured, wanted, connection_from_environment))
    for line in to_do:
        typer.echo(line)
    if not to_do:
        typer.echo("There is nothing to repair.")
        return
    if not yes:
        confirm(f"Do this in {stream}?")
    task = Task(name=f"tidemark archive repair {stream}", attempt=1)
    busy = repair_archive(configured, wanted, connection_from_environment, task)
    for hour in busy:
        typer.echo(f"{stream}/{hour} is left: another worker holds it")
    if busy:
        raise typer.Exit(1)
    typer.echo("Done. What was given up is a gap of its hour: see `tidemark why`.")


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
