"""`tidemark workers`: who holds what, and how to take it from him."""

import re
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Table

from tidemark.cli.confirm import confirm
from tidemark.cli.default_command import ShowsByDefault
from tidemark.cli.output import print_json, print_table
from tidemark.cli.progress import progress
from tidemark.cli.words import AsJson, Yes
from tidemark.environment import connection_from_environment
from tidemark.errors import TidemarkError, WrongUse
from tidemark.names import isoformat

if TYPE_CHECKING:
    from tidemark.inspect.workers import LeaseView, WorkerView
    from tidemark.ledger.eviction import Holding

app = typer.Typer(
    cls=ShowsByDefault,
    short_help="Who works on what; evict frees what a worker holds.",
    help="Who works on what: `tidemark workers`.",
    subcommand_metavar="[COMMAND] [ARGS]…",
)

_WORKER: Final = re.compile(r"worker-[0-9]{10}", re.ASCII)
_SHOWN_QUEUES: Final = 4


@app.command()
def show(as_json: AsJson = False) -> None:
    """The workers that live, and the lease of every stream.

    Changes nothing.
    """
    from tidemark.inspect.workers import view_leases, view_workers
    from tidemark.ledger.zookeeper import open_session

    with progress("Looking for workers"), open_session(connection_from_environment) as client:
        workers, leases = view_workers(client), view_leases(client)
    if as_json:
        value = {
            "workers": [_worker_as_json(worker) for worker in workers],
            "leases": [lease_as_json(lease) for lease in leases],
        }
        print_json(value)
    else:
        print_table(_table_of_workers(workers) if workers else "No worker lives.")
        print_table(_table_of_leases(leases) if leases else "No stream has a lease yet.")


@app.command()
def evict(
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="As `tidemark workers` names it: worker-0000000101.")],
    yes: Yes = False,
) -> None:
    """Free the leases that a worker holds; its job cannot commit any more.

    Exit code 1 when there is no such worker or the answer is no.
    """
    from tidemark.ledger.eviction import evict as free
    from tidemark.ledger.eviction import find_holdings
    from tidemark.ledger.zookeeper import open_session

    if not _WORKER.fullmatch(worker):
        raise WrongUse(f"Cannot evict {worker!r}: wanted a worker's name such as worker-0000000101")
    with progress(f"Looking at {worker}"), open_session(connection_from_environment) as client:
        holdings, lives = find_holdings(client, worker), _lives(client, worker)
    if not holdings:
        _say_that_nothing_is_held(worker, lives)
        return
    _announce(worker, holdings)
    confirm("Evict it?", yes=yes)
    with progress(f"Evicting {worker}") as bar, open_session(connection_from_environment) as client:
        for holding in holdings:
            was_held = free(client, worker, holding)
            bar.say(f"{holding}: {'freed' if was_held else 'not held any more'}")


def describe_lease(lease: "LeaseView") -> str:
    if lease.owner is None:
        return f"free, epoch {lease.epoch}"
    holder = f"{lease.owner} for {lease.task}, try {lease.attempt}, epoch {lease.epoch}"
    since = isoformat(lease.since_ms) if lease.since_ms else "an unknown time"
    return f"{holder}, since {since}" if lease.is_held else f"free: {holder} is gone"


def lease_as_json(lease: "LeaseView") -> dict[str, Any]:
    return {
        "stream": lease.stream,
        "owner": lease.owner,
        "task": lease.task,
        "try": lease.attempt,
        "epoch": lease.epoch,
        "count": lease.count,
        "since": isoformat(lease.since_ms) if lease.since_ms else None,
        "renewed": isoformat(lease.renewed_ms),
        "held": lease.is_held,
    }


def _worker_as_json(worker: "WorkerView") -> dict[str, Any]:
    return {
        "name": worker.name,
        "task": worker.task,
        "try": worker.attempt,
        "queues": list(worker.queues),
        "versions": dict(worker.versions),
        "since": isoformat(worker.since_ms),
    }


def _table_of_workers(workers: "list[WorkerView]") -> Table:
    table = Table("worker", "since", "try", box=None)
    for heading in ("task", "queues"):
        table.add_column(heading, overflow="fold")
    for worker in workers:
        more = len(worker.queues) - _SHOWN_QUEUES
        queues = [*worker.queues[:_SHOWN_QUEUES], *([f"and {more} more"] if more > 0 else [])]
        table.add_row(worker.name, isoformat(worker.since_ms), str(worker.attempt), worker.task, ", ".join(queues))
    return table


def _table_of_leases(leases: "list[LeaseView]") -> Table:
    table = Table("stream", "epoch", "count", "renewed", box=None)
    table.add_column("lease", overflow="fold")
    for lease in leases:
        renewed = isoformat(lease.renewed_ms)
        table.add_row(lease.stream, str(lease.epoch), str(lease.count), renewed, describe_lease(lease))
    return table


def _lives(client: Any, worker: str) -> bool:
    from tidemark.ledger import paths
    from tidemark.ledger.zookeeper import ask

    return ask(client.exists_async, paths.worker(worker)) is not None


def _say_that_nothing_is_held(worker: str, lives: bool) -> None:
    if not lives:
        raise TidemarkError(f"Cannot evict {worker}: there is no such worker, and it holds nothing")
    typer.echo(f"{worker} holds no lease: nothing to do.")


def _announce(worker: str, holdings: "list[Holding]") -> None:
    typer.echo(f"{worker} loses, and cannot commit any more:")
    for holding in holdings:
        typer.echo(f"  {holding}: {holding.task}, try {holding.attempt}, epoch {holding.epoch}")
