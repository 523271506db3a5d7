"""`tidemark demo`: what `make demo` runs."""

from typing import Annotated

import typer
from rich.console import Console

from tidemark.environment import stack_folder


def demo(keep: Annotated[bool, typer.Option(help="Leave the stack running.")] = False) -> None:
    """Run the pipeline on real services with sample data: stack, topics, three hours, flags."""
    from tidemark.demo.run import run_demo

    run_demo(stack_folder() / "demo", keep=keep, console=Console())
