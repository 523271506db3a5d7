"""The command `tidemark`: one sub-command a file, errors told in one line, exit codes in one place."""

import logging
import sys
from typing import Annotated

import typer

from tidemark import __version__
from tidemark.cli import (
    archive,
    boom,
    check,
    demo,
    flags,
    lookup,
    offsets,
    parse,
    rebuild,
    retain,
    stack,
    timeline,
    verify,
    why,
    workers,
)
from tidemark.errors import TidemarkError

app = typer.Typer(
    name="tidemark",
    help="Kafka to HDFS, hour by hour, with ready flags that carry their proof.\n\n"
    "Exit codes: 0 yes, 1 no, 2 wrong use, 3 a service is not reachable.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(stack.app, name="stack")
app.add_typer(boom.app, name="boom")
app.add_typer(offsets.app, name="offsets")
app.add_typer(flags.app, name="flags")
app.add_typer(timeline.app, name="timeline")
app.add_typer(archive.app, name="archive")
app.add_typer(workers.app, name="workers")
app.command()(why.why)
# An offset may be -1, which is no option.
app.command(context_settings={"ignore_unknown_options": True})(lookup.locate)
app.command()(lookup.cat)
app.command()(check.check)
app.command()(verify.verify)
app.command()(rebuild.rebuild)
app.command()(retain.retain)
app.command()(parse.parse)
app.command()(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidemark {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")] = False,
) -> None:
    del version, debug


def main() -> None:
    is_debug = "--debug" in sys.argv
    if not is_debug:
        # It warns of each attempt to connect; the error that comes of them is told in one line.
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    try:
        app()
    except TidemarkError as error:
        if is_debug:
            raise
        typer.echo(f"tidemark: {error}", err=True)
        sys.exit(error.exit_code)
