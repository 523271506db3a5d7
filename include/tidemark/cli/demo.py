"""`tidemark demo`: what `make demo` runs."""

from typing import Annotated

import typer
from rich.console import Console

from tidemark.environment import stack_folder


def demo(keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running.")] = False) -> None:
    """Run the pipeline on real services with three hours of sample data.

    Starts a stack of its own, fills two topics, lets Airflow run the hours, and shows their flags.
    """
    from tidemark.demo.run import run_demo

    run_demo(stack_folder() / "demo", keep=keep, console=Console())
