"""`tidemark stack`: the embedded stack."""

import shlex
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from tidemark.cli.output import print_json, print_table
from tidemark.cli.words import AsJson
from tidemark.environment import stack_folder
from tidemark.stack import DEFAULT_SERVICES, PORT_NAMES, ServiceStatus, Stack
from tidemark.stack.jars import JAR_SETS, jar_paths, resolve_jars
from tidemark.stack.java import find_java
from tidemark.stack.ports import parse_ports

app = typer.Typer(
    short_help="ZooKeeper, Kafka, HDFS, Spark and Airflow: up, down, status.",
    help="ZooKeeper, Kafka, HDFS, Spark and Airflow on this machine, below one folder (TIDEMARK_HOME).",
    no_args_is_help=True,
)


@app.command()
def up(
    services: Annotated[
        list[str] | None,
        typer.Argument(metavar="SERVICE", help="All but the Spark cluster if none is named."),
    ] = None,
    port: Annotated[list[str] | None, typer.Option(metavar="NAME=PORT", help="A fixed port, as in kafka=9092.")] = None,
) -> None:
    """Start the services that do not run yet.

    Waits until all are healthy; ports are free ones unless given.
    """
    stack = Stack(stack_folder())
    ports = parse_ports(port or [], PORT_NAMES)
    begin = time.monotonic()
    stack.up(services or DEFAULT_SERVICES, ports=ports, on_step=typer.echo)
    typer.echo(f"The stack runs in {stack.home} ({time.monotonic() - begin:.1f} s).")
    if "TIDEMARK_UI" in stack.environment():
        login = stack.login()
        typer.echo(f"Airflow: {login.address}  user {login.user}  password {login.password}")
    typer.echo('Clients: eval "$(tidemark stack env)"')


@app.command()
def down() -> None:
    """End every process of the stack; its data stays."""
    stack = Stack(stack_folder())
    begin = time.monotonic()
    stack.down(on_step=typer.echo)
    typer.echo(f"No process of the stack in {stack.home} is left ({time.monotonic() - begin:.1f} s).")


@app.command()
def status(as_json: AsJson = False) -> None:
    """Say of each service whether it runs.

    Exit code 1 unless all do.
    """
    statuses = Stack(stack_folder()).status()
    if as_json:
        print_json([{**asdict(each), "log": each.log and str(each.log)} for each in statuses])
    else:
        print_table(_table(statuses))
    raise typer.Exit(0 if all(each.running for each in statuses) else 1)


@app.command()
def env() -> None:
    """Print the settings of a client: eval "$(tidemark stack env)".

    As exports of a shell.
    """
    typer.echo(to_exports(Stack(stack_folder()).environment()))


@app.command()
def jars(as_json: AsJson = False) -> None:
    """Fetch the pinned jars into the cache folder."""
    resolve_jars(JAR_SETS, find_java(_say), _say)
    paths = {name: [str(path) for path in jar_paths(name)] for name in JAR_SETS}
    if as_json:
        print_json(paths)
    else:
        for name in JAR_SETS:
            typer.echo(f"{name}: {len(paths[name])} jars in {jar_paths(name)[0].parent}")


def to_exports(environment: Mapping[str, str]) -> str:
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in environment.items())


def _say(step: str) -> None:
    typer.echo(step, err=True)


def _table(statuses: list[ServiceStatus]) -> Table:
    table = Table("service", "running", "pid", box=None)
    for heading in ("address", "memory", "log"):
        table.add_column(heading, overflow="fold")
    for each in statuses:
        table.add_row(
            each.name,
            "yes" if each.running else "no",
            str(each.pid or "-"),
            each.address or "-",
            f"{each.memory_mb} MB" if each.pid else "-",
            str(each.log or "-"),
            style=None if each.running else "red",
        )
    return table
