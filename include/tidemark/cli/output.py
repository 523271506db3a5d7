"""What a command prints: tables for people, JSON for programs."""

import json
import sys
from typing import Any, Final

import typer
from rich.console import Console, RenderableType

_UNBOUNDED: Final = 10_000


def print_table(table: RenderableType) -> None:
    """As wide as the terminal; elsewhere as wide as it is, so that a row stays one line for grep and awk.

    Colours are for terminals only, and not where NO_COLOR is set. Nothing in a name or a reason is markup.
    """
    width = None if sys.stdout.isatty() else _UNBOUNDED
    Console(width=width, markup=False, highlight=False, emoji=False).print(table)


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
