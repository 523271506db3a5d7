"""`tidemark stack`: the embedded stack."""

import typer

app = typer.Typer(help="The embedded stack.", no_args_is_help=True)
