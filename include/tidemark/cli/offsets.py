"""`tidemark offsets`: how far a stream is, and how to move it forward."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from tidemark.cli.confirm import confirm
from tidemark.cli.default_command import ShowsByDefault
from tidemark.cli.output import print_json, print_table
from tidemark.cli.progress import progress
from tidemark.cli.words import AsJson, StreamName, Yes
from tidemark.cli.workers import describe_lease, lease_as_json
from tidemark.environment import connection_from_environment, streams_file
from tidemark.names import isoformat, valid_stream

if TYPE_CHECKING:
    from tidemark.inspect.offsets import StreamOffsets
    from tidemark.plan.move import Outlook

app = typer.Typer(
    cls=ShowsByDefault,
    short_help="How far a stream is, shard by shard; set gives records up.",
    help="How far a stream is: `tidemark offsets STREAM`.",
    no_args_is_help=True,
    subcommand_metavar="STREAM | COMMAND [ARGS]…",
)


@app.command()
def show(stream: StreamName, as_json: AsJson = False) -> None:
    """Of each shard next, Kafka's end, lag, cursor and watermark.

    And of the stream the open shift and the lease. Changes nothing. Exit code 1 when it was never planned.
    """
    from tidemark.config import load_stream
    from tidemark.inspect.offsets import NeverPlanned, view_offsets
    from tidemark.ledger.zookeeper import open_session

    valid_stream(stream)
    with progress(f"Asking for the offsets of {stream}"), open_session(connection_from_environment) as client:
        try:
            found = view_offsets(client, stream, connection_from_environment)
        except NeverPlanned:
            # A name that is not even configured is a wrong one.
            load_stream(streams_file(), stream)
            raise
    if as_json:
        print_json(_as_json(found))
    else:
        _print(found)


@app.command("set")
def set_offset(
    stream: StreamName,
    shard: Annotated[str, typer.Argument(metavar="SHARD", help="As `tidemark offsets` names it: 0001-3.")],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, help="Where it goes on.")],
    yes: Yes = False,
) -> None:
    """Give up records: move a shard forward.

    Or confirm its position on a log that was replaced. What is given up is a gap on record, which holds its hours.
    Exit code 1 when the answer is no.
    """
    from tidemark.config import load_stream
    from tidemark.drive.acts import look_at_move, move_shard
    from tidemark.names import Shard, Task

    configured = load_stream(streams_file(), stream)
    wanted = Shard.parse(shard)
    with progress(f"Looking at {stream}/{wanted}"):
        outlook = look_at_move(configured, wanted, offset, connection_from_environment)
    _announce(stream, outlook)
    confirm(f"Move {stream}/{wanted}?", yes=yes)
    task = Task(name=f"tidemark offsets set {stream} {wanted} {offset}", attempt=1)
    with progress(f"Moving {stream}/{wanted}"):
        act = move_shard(configured, wanted, offset, connection_from_environment, task)
    typer.echo(f"{stream}/{wanted} goes on at {offset}: {act}")


def _announce(stream: str, outlook: "Outlook") -> None:
    position, found = outlook.position, outlook.kafka
    given_up = range(position.next, outlook.offset)
    kept = len(range(max(position.next, found.begin), outlook.offset))
    typer.echo(
        f"{stream}/{outlook.shard} moves from {position.next} to {outlook.offset} "
        f"(Kafka has [{found.begin}, {found.end}) of {outlook.topic.name})."
    )
    if outlook.was_made_again:
        typer.echo("Its topic was deleted and made again: the new one is taken, every shard has to be confirmed.")
    typer.echo(
        f"Given up: {len(given_up)} offsets, {kept} of them still in Kafka. They become a gap, which holds the hours "
        f"from {isoformat(position.watermark_ms)} until now."
    )


def _as_json(found: "StreamOffsets") -> dict[str, Any]:
    return {
        "stream": found.stream,
        "number": found.number,
        "open": found.open,
        "timelines_version": found.timelines_version,
        "lag": found.lag,
        "lease": lease_as_json(found.lease) if found.lease else None,
        "shards": [
            {
                "shard": str(row.shard),
                "topic": row.topic,
                "next": row.next,
                "end": row.end,
                "lag": row.lag,
                "cursor": row.cursor,
                "watermark": _time(row.watermark_ms),
                "completed": row.completed,
            }
            for row in found.shards
        ],
    }


def _print(found: "StreamOffsets") -> None:
    table = Table("shard", box=None)
    for heading in ("next", "end", "lag"):
        table.add_column(heading, justify="right")
    for heading in ("cursor", "watermark"):
        table.add_column(heading)
    for row in found.shards:
        watermark = "completed" if row.completed else _time(row.watermark_ms) or "never planned"
        following = "-" if row.next is None else str(row.next)
        table.add_row(str(row.shard), following, str(row.end), str(row.lag), str(row.cursor or "-"), watermark)
    print_table(table)
    typer.echo(f"lag    {found.lag} records")
    typer.echo(f"shift  {found.open or 'none'} open, {found.number} planned")
    typer.echo(f"lease  {describe_lease(found.lease) if found.lease else 'never taken'}")


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else isoformat(time_ms)
