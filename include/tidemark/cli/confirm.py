"""The question before a command changes something."""

import sys

import typer

from tidemark.errors import WrongUse


def confirm(question: str, *, yes: bool) -> None:
    """Exit code 1 when the answer is no; nobody at the terminal is wrong use. `yes`: it was given with the command."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise WrongUse("Cannot go on without an answer: nobody is at the terminal; say --yes")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)
