"""The words of the command line: an argument or option means the same, and is told the same, in every command."""

from collections.abc import Iterator
from typing import Annotated

import typer

from tidemark.environment import streams_file


def complete_stream(incomplete: str) -> Iterator[str]:
    """For the shell; a configuration that cannot be read has no names."""
    from tidemark.config import load_streams

    yield from (name for name in load_streams(streams_file()).streams if name.startswith(incomplete))


StreamName = Annotated[
    str, typer.Argument(metavar="STREAM", help="As streams.yaml names it.", autocompletion=complete_stream)
]
StreamNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="STREAM", help="All that are configured if none is named.", autocompletion=complete_stream),
]
HourName = Annotated[str, typer.Argument(metavar="HOUR", help="UTC: 2026-11-15T07.")]
DayName = Annotated[str | None, typer.Argument(metavar="DAY", help="UTC: 2026-11-15; without it every day.")]
HourOrDay = Annotated[str, typer.Argument(metavar="HOUR|DAY", help="UTC: 2026-11-15T07 or 2026-11-15.")]
TimelineNumber = Annotated[int, typer.Argument(metavar="TIMELINE", min=1, help="As `tidemark timeline list` has it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="One JSON object a line; where messages contain newlines.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
