"""What a command reads and prints: tables for people, JSON for programs."""

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import typer
from rich.console import Console, RenderableType
from typing_extensions import override

from tidemark.errors import TidemarkError, WrongUse

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_UNBOUNDED: Final = 10_000


def print_table(table: RenderableType) -> None:
    """As wide as the terminal; elsewhere as wide as it is, so that a row stays one line for grep and awk.

    Colours are for terminals only, and not where NO_COLOR is set. Nothing in a name or a reason is markup.
    """
    width = None if sys.stdout.isatty() else _UNBOUNDED
    Console(width=width, markup=False, highlight=False, emoji=False).print(table)


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def standard_input() -> io.BufferedReader:
    if sys.stdin is None:
        raise WrongUse("Cannot read standard input: it is closed")
    return cast(io.BufferedReader, sys.stdin.buffer)


@contextmanager
def standard_output() -> Iterator[None]:
    """Whatever writes in the block, an error of standard output is told as one; a replaced one is left alone."""
    before = sys.stdout
    if before is None:
        raise WrongUse("Cannot write standard output: it is closed")
    if sys.stdout is not sys.__stdout__:
        yield
        return
    raw = io.BufferedWriter(_Output(before.fileno(), "w", closefd=False))
    sys.stdout = io.TextIOWrapper(raw, before.encoding, before.errors, line_buffering=before.isatty())
    try:
        yield
    finally:
        sys.stdout = before


class _Output(io.FileIO):
    @override
    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            # What is still buffered has nowhere to go, and would be an error once more at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            raise TidemarkError(f"Cannot write standard output: {error.strerror}") from error
