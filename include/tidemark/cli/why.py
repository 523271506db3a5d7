"""`tidemark why`: why an hour or a day is not ready."""

import json
from typing import Annotated

import typer

from tidemark.environment import connection_from_environment, streams_file


def why(
    stream: Annotated[str, typer.Argument()],
    subject: Annotated[str, typer.Argument(metavar="HOUR|DAY", help="UTC: 2026-11-15T07 or 2026-11-15.")],
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Say why an hour or a day is not ready and what would end that; of a ready one, what proves it.

    Exit code 0 when it is ready, 1 when not.
    """
    from tidemark.config import load_stream
    from tidemark.drive.why import why as ask
    from tidemark.names import parse_subject

    answer = ask(load_stream(streams_file(), stream), parse_subject(subject), connection_from_environment)
    typer.echo(json.dumps(answer.as_json(), indent=2) if as_json else "\n".join(answer.lines(stream)))
    raise typer.Exit(0 if answer.is_ready else 1)
