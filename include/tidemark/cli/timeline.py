"""`tidemark timeline`: which topics carried a stream, and how to move it to another one."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from tidemark.cli.confirm import confirm
from tidemark.cli.output import print_json, print_table
from tidemark.cli.progress import progress
from tidemark.cli.words import AsJson, StreamName, TimelineNumber, Yes
from tidemark.environment import connection_from_environment, streams_file
from tidemark.errors import WrongUse
from tidemark.names import isoformat, valid_cluster, valid_stream, valid_topic

if TYPE_CHECKING:
    from tidemark.inspect.timelines import ShardView, TimelineView
    from tidemark.plan.switch import SwitchOutlook

app = typer.Typer(
    short_help="The topics that carried a stream; switch to another one.",
    help="The topics and clusters that carry a stream, one after the other.",
    no_args_is_help=True,
)


@app.command("list")
def list_timelines(stream: StreamName, as_json: AsJson = False) -> None:
    """The timelines of a stream, and how far they are completed.

    Changes nothing, asks no broker.
    """
    views = _views(stream)
    if as_json:
        print_json([_timeline_as_json(view) for view in views])
        return
    table = Table("timeline", "cluster", "topic", "since", "state", "completed", box=None)
    for view in views:
        completed = f"{view.completed} of {len(view.shards)}" if view.shards else ""
        found = view.timeline
        since = isoformat(found.switched_ms)
        table.add_row(str(view.order), found.cluster, found.topic, since, view.state, completed)
    print_table(table)


@app.command()
def show(stream: StreamName, as_json: AsJson = False) -> None:
    """The graph: every shard with its parents and its progress.

    Changes nothing, asks no broker.
    """
    views = _views(stream)
    if as_json:
        value = [{**_timeline_as_json(view), "shards": [_shard_as_json(s) for s in view.shards]} for view in views]
        print_json(value)
        return
    for view in views:
        found = view.timeline
        typer.echo(f"timeline {view.order}: {found.topic} on {found.cluster}, {view.state}")
        for shard in view.shards:
            typer.echo(f"  {_describe(shard)}")


@app.command()
def switch(
    stream: StreamName,
    cluster: Annotated[str, typer.Option(metavar="NAME", help="The connection kafka_NAME.")],
    topic: Annotated[str, typer.Option(metavar="NAME", help="The new topic; it must exist.")],
    latest: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Last offsets of the old topic, -1 for none: a JSON list.",
        ),
    ] = None,
    stable_for: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long the old ends must stand still; 30s without it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen, change nothing.")] = False,
    evict: Annotated[
        bool, typer.Option("--evict", help="Take the lease from a job that does not finish in time.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Go on with another topic, and close the present timeline.

    All of it happens, or nothing. Records that appear in the old topic later are read, too, and raise an alarm. Exit
    code 1 when the answer is no.
    """
    from tidemark.config import load_stream, parse_duration
    from tidemark.drive.acts import STABLE_S, look_at_switch, switch_timeline
    from tidemark.names import Task

    if latest and stable_for:
        raise WrongUse("Cannot use both --latest and --stable-for: wanted one source of the last offsets")
    configured = load_stream(streams_file(), stream)
    offsets = _read_latest(latest) if latest else None
    stable_s = parse_duration(stable_for).total_seconds() if stable_for else STABLE_S
    valid_cluster(cluster), valid_topic(topic)
    with progress(f"Looking at {topic} on {cluster}"):
        outlook = look_at_switch(configured, cluster, topic, connection_from_environment)
    _announce(stream, outlook)
    if dry_run:
        return
    confirm(f"Switch {stream}?", yes=yes)
    with progress(f"Switching {stream}") as bar:
        act = switch_timeline(
            configured,
            outlook,
            connection_from_environment,
            Task(name=f"tidemark timeline switch {stream} {cluster} {topic}", attempt=1),
            latest=offsets,
            stable_s=stable_s,
            evict=evict,
            on_step=bar.say,
        )
    typer.echo(f"{stream} goes on with {topic} on {cluster}: {act}")


@app.command()
def retire(stream: StreamName, timeline: TimelineNumber, yes: Yes = False) -> None:
    """Ask a completed timeline no more: its topic may be deleted.

    Exit code 1 when the answer is no.
    """
    found = _look_at(stream, timeline).timeline
    typer.echo(f"Records that its topic, {found.topic} on {found.cluster}, gets from now on are not read.")
    confirm(f"Retire timeline {timeline} of {stream}?", yes=yes)
    act = _retire(stream, timeline, abandoned=False)
    typer.echo(f"Timeline {timeline} of {stream} is retired: {act}")


@app.command()
def abandon(stream: StreamName, timeline: TimelineNumber, yes: Yes = False) -> None:
    """Give up what a closed timeline still had to be read.

    It becomes a gap on record, which holds its hours. For a cluster that is gone for good. Exit code 1 when the answer
    is no.
    """
    for shard in _look_at(stream, timeline).shards:
        if not shard.completed:
            typer.echo(f"Given up: {_describe(shard)}")
    confirm(f"Abandon timeline {timeline} of {stream}?", yes=yes)
    act = _retire(stream, timeline, abandoned=True)
    typer.echo(f"Timeline {timeline} of {stream} is abandoned: {act}")


def _look_at(stream: str, timeline: int) -> "TimelineView":
    """Told before anybody is asked."""
    views = {view.order: view for view in _views(stream)}
    if timeline not in views:
        raise WrongUse(f"Cannot find timeline {timeline} of {stream}: it has {', '.join(map(str, views))}")
    view = views[timeline]
    typer.echo(f"Timeline {timeline} of {stream} is {view.state}, {view.completed} of its shards are completed.")
    return view


def _retire(stream: str, timeline: int, *, abandoned: bool) -> str:
    from tidemark.config import load_stream
    from tidemark.drive.acts import retire as retire_timeline
    from tidemark.ledger.records import Retirement
    from tidemark.names import Task

    name = "abandon" if abandoned else "retire"
    task = Task(name=f"tidemark timeline {name} {stream} {timeline}", attempt=1)
    retirement = Retirement(timeline=timeline, abandoned=abandoned)
    with progress(f"Closing timeline {timeline} of {stream} for good"):
        return retire_timeline(load_stream(streams_file(), stream), retirement, connection_from_environment, task)


def _read_latest(path: Path) -> list[int]:
    try:
        found = json.loads(path.read_text())
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(type(last) is int and last >= -1 for last in found):
        raise WrongUse(f"Cannot read {path}: wanted a JSON list of last offsets such as [41, -1]")
    return found


def _views(stream: str) -> "list[TimelineView]":
    from tidemark.config import load_stream
    from tidemark.inspect.offsets import NeverPlanned
    from tidemark.inspect.timelines import view_timelines
    from tidemark.ledger.zookeeper import open_session

    valid_stream(stream)
    with progress(f"Reading the timelines of {stream}"), open_session(connection_from_environment) as client:
        try:
            return view_timelines(client, stream)
        except NeverPlanned:
            # A name that is not even configured is a wrong one.
            load_stream(streams_file(), stream)
            raise


def _announce(stream: str, outlook: "SwitchOutlook") -> None:
    old, partitions = outlook.old, len(outlook.begins)
    typer.echo(
        f"{stream} moves from timeline {outlook.order}, {old.topic} on {old.cluster} ({len(outlook.known)} partitions) "
        f"to {outlook.topic.name} on {outlook.cluster} ({partitions} partitions)."
    )
    what = "the same partition" if outlook.parents == "same" else "all partitions"
    typer.echo(f"Each new shard waits for {what} of the old topic, and begins at {list(outlook.begins)}.")


def _describe(shard: "ShardView") -> str:
    behind = f" after {', '.join(str(parent) for parent in shard.parents)}" if shard.parents else ""
    end = "" if shard.end is None else f" of {shard.end}"
    grown = f", ALARM: {shard.grown} records came after its end" if shard.grown else ""
    state = "completed" if shard.completed else f"watermark {isoformat(shard.watermark_ms)}"
    return f"{shard.shard}{behind}: next {shard.next}{end}, {state}, cursor {shard.cursor}{grown}"


def _timeline_as_json(view: "TimelineView") -> dict[str, Any]:
    found = view.timeline
    return {
        "timeline": view.order,
        "cluster": found.cluster,
        "topic": found.topic,
        "topic_id": found.topic_id,
        "switched": isoformat(found.switched_ms),
        "parents": found.parents,
        "latest": found.latest,
        "state": view.state,
        "completed": view.completed,
        "partitions": len(view.shards),
    }


def _shard_as_json(shard: "ShardView") -> dict[str, Any]:
    return {
        "shard": str(shard.shard),
        "parents": [str(parent) for parent in shard.parents],
        "next": shard.next,
        "end": shard.end,
        "cursor": shard.cursor,
        "watermark": isoformat(shard.watermark_ms),
        "completed": shard.completed,
        "grown": shard.grown,
    }
