"""`tidemark why`: why an hour or a day is not ready."""

import typer

from tidemark.cli.output import print_json
from tidemark.cli.progress import progress
from tidemark.cli.words import AsJson, HourOrDay, StreamName
from tidemark.environment import connection_from_environment, streams_file


def why(stream: StreamName, subject: HourOrDay, as_json: AsJson = False) -> None:
    """Why an hour or a day is not ready, or what proves that it is.

    Of one that is not ready also what would end that. Exit code 0 when it is ready, 1 when not.
    """
    from tidemark.config import load_stream
    from tidemark.drive.why import why as ask
    from tidemark.names import parse_subject

    configured, wanted = load_stream(streams_file(), stream), parse_subject(subject)
    with progress(f"Asking why {stream}/{wanted} is not ready"):
        answer = ask(configured, wanted, connection_from_environment)
    if as_json:
        print_json(answer.as_json())
    else:
        typer.echo("\n".join(answer.lines(stream)))
    raise typer.Exit(0 if answer.is_ready else 1)
