"""The command `tidemark`: one sub-command a file, errors told in one line, exit codes in one place."""

import logging
import sys
from typing import Annotated, Final

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
    streams,
    timeline,
    verify,
    why,
    workers,
)
from tidemark.cli.map import Map
from tidemark.cli.output import standard_output
from tidemark.errors import TidemarkError

EXIT_CODES: Final = {
    0: "yes, or done",
    1: "no, or not done: the reason is told",
    2: "wrong use: an argument, an option or a setting has to be corrected",
    3: "a service is not reachable: try again when it is",
    130: "ended by Ctrl-C",
    141: "whoever read the output went away, as `head` does",
}
_DEBUG: Final = "--debug"
_LONGEST: Final = 300

app = typer.Typer(
    name="tidemark",
    cls=Map,
    help="Kafka to HDFS, hour by hour, with ready flags that carry their proof.\n\n"
    "Exit codes: 0 yes, 1 no, 2 wrong use, 3 a service is not reachable.\n\n"
    "`tidemark COMMAND --help` tells more; --debug may stand anywhere.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(why.why)
app.add_typer(flags.app, name="flags")
app.command()(check.check)
app.command()(verify.verify)
app.add_typer(streams.app, name="streams")
app.add_typer(offsets.app, name="offsets")
app.add_typer(timeline.app, name="timeline")
app.add_typer(workers.app, name="workers")
app.command()(lookup.locate)
app.command()(lookup.cat)
app.add_typer(boom.app, name="boom")
app.command()(parse.parse)
app.add_typer(archive.app, name="archive")
app.command()(rebuild.rebuild)
app.command()(retain.retain)
app.add_typer(stack.app, name="stack")
app.command()(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidemark {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option(_DEBUG, help="Show the stack trace of an error.")] = False,
) -> None:
    del version, debug


def main() -> None:
    arguments = sys.argv[1:]
    is_debug = _DEBUG in arguments
    if not is_debug:
        # It warns of each attempt to connect; the error that comes of them is told in one line.
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    try:
        with standard_output():
            app(args=[argument for argument in arguments if argument != _DEBUG])
    except TidemarkError as error:
        if is_debug:
            raise
        typer.echo(f"tidemark: {error}", err=True)
        sys.exit(error.exit_code)
    except Exception as error:
        if is_debug:
            raise
        first = next(iter(str(error).splitlines()), "")[:_LONGEST]
        typer.echo(f"tidemark: unexpected {type(error).__name__}: {first} ({_DEBUG} shows where)", err=True)
        sys.exit(1)
