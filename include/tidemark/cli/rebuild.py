"""`tidemark rebuild`: ZooKeeper is lost, storage is not."""

import typer

from tidemark.cli.confirm import confirm
from tidemark.cli.progress import progress
from tidemark.cli.words import StreamName, Yes
from tidemark.environment import connection_from_environment, streams_file


def rebuild(stream: StreamName, yes: Yes = False) -> None:
    """ZooKeeper is lost: restore a stream's ledger from storage.

    Timelines, positions, shifts, hours, days and operators' acts. Refused while ZooKeeper knows the stream. Whatever
    was under way when ZooKeeper was lost is done again by the next run; no job of before can commit. Exit code 1 when
    the answer is no.
    """
    from tidemark.config import load_stream
    from tidemark.drive.rebuild import rebuild_stream
    from tidemark.names import Task

    configured = load_stream(streams_file(), stream)
    typer.echo(
        f"The ledger of {stream} is written anew from the manifests below {configured.root}; what lies in its _tmp "
        "is deleted, and no job of before can commit."
    )
    confirm(f"Rebuild {stream}?", yes=yes)
    task = Task(name=f"tidemark rebuild {stream}", attempt=1)
    with progress(f"Rebuilding {stream}"):
        done = rebuild_stream(configured, connection_from_environment, task)
    typer.echo(
        f"{stream} is rebuilt from {done.manifests} manifests: {done.hours} hours, {done.days} days, "
        f"last shift {done.last}"
    )
