"""`tidemark boom`: the embedded stack."""

import typer

app = typer.Typer(help="Read, write and verify boom files.", no_args_is_help=True)
