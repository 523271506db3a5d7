"""`tidemark rebuild`: ZooKeeper is lost, storage is not."""

from typing import Annotated

import typer

from tidemark.environment import connection_from_environment, streams_file


def rebuild(stream: Annotated[str, typer.Argument()]) -> None:
    """Restore a stream's ledger from storage alone: timelines, positions, shifts, hours, days, operators' acts.

    Refused while ZooKeeper knows the stream. Whatever was under way when ZooKeeper was lost is done again by the next
    run; no job of before can commit.
    """
    from tidemark.config import load_stream
    from tidemark.drive.rebuild import rebuild_stream
    from tidemark.names import Task

    task = Task(name=f"tidemark rebuild {stream}", attempt=1)
    done = rebuild_stream(load_stream(streams_file(), stream), connection_from_environment, task)
    typer.echo(
        f"{stream} is rebuilt from {done.manifests} manifests: {done.hours} hours, {done.days} days, "
        f"last shift {done.last}"
    )
