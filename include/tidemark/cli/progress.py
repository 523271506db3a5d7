"""What a person at the terminal sees while a command takes its time."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

PATIENCE_S: Final = 2.0
"""A command that is done before shows nothing."""


class Bar:
    def __init__(self, progress: Progress, what: str) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=None)

    def advance(self, total: int, by: int = 1) -> None:
        """So much more of the total is done; until it is told for the first time the bar only moves."""
        self._progress.update(self._task, advance=by, total=total)

    def say(self, line: str) -> None:
        """A line of the command's output, above the bar."""
        was_shown = self._progress.live.is_started
        if was_shown:  # Else it would leave an empty line where there is no terminal.
            self._progress.stop()
        typer.echo(line)
        if was_shown:
            self._progress.start()


@contextmanager
def progress(what: str, *, beside_output: bool = False) -> Iterator[Bar]:
    """A bar on standard error, after a while, and only where that is a terminal; it goes away at the end.

    `beside_output`: the command writes all the while. Where that goes to a terminal, too, it is progress enough.
    """
    console = Console(stderr=True, markup=False)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    shown = Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
    timer = Timer(PATIENCE_S, shown.start)
    timer.daemon = True
    is_wanted = console.is_terminal and not (beside_output and sys.stdout.isatty())
    if is_wanted:
        timer.start()
    try:
        yield Bar(shown, what)
    finally:
        timer.cancel()
        if is_wanted:
            timer.join()
            shown.stop()
