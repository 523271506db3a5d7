"""`tidemark locate` and `tidemark cat`: lines of the archive by index and block, without reading an hour."""

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from tidemark.environment import connection_from_environment, streams_file
from tidemark.errors import WrongUse

if TYPE_CHECKING:
    from tidemark.inspect.locate import Located
    from tidemark.ledger.stream import StreamLedger
    from tidemark.storage import Storage

AsJson = Annotated[bool, typer.Option("--json")]


def locate(
    stream: Annotated[str, typer.Argument()],
    shard: Annotated[str | None, typer.Argument(help="0001-3: partition 3 of timeline 1.")] = None,
    offset: Annotated[
        int | None, typer.Argument(help="Its offset in Kafka; -1: the last line of the timelines before.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="The first line at or after: 2026-11-15T07:12:31Z.")] = None,
    source: Annotated[str | None, typer.Option(help="A file that a shift wrote: where its pieces are.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a line, its file and byte range: by SHARD OFFSET, by --time, or the places of a --source.

    Reads the index and one block, and changes nothing. Exit code 1 when there is no such line.
    """
    from tidemark.inspect.locate import locate_offset, locate_source, locate_time
    from tidemark.names import Shard

    wanted = Shard.parse(shard) if shard else None
    if (offset is not None) + (time is not None) + (source is not None) != 1 or (offset is not None and not wanted):
        raise WrongUse("Cannot locate that: wanted SHARD OFFSET, or --time, or --source")
    with _opened(stream) as (storage, ledger):
        if source is not None:
            path, pieces = locate_source(storage, ledger, source)
            _show_pieces(path, [_piece(piece) for piece in pieces], as_json)
        elif time is not None:
            _show_line(locate_time(storage, ledger, _parse_time(time), wanted), as_json)
        elif wanted and offset is not None:
            _show_line(locate_offset(storage, ledger, wanted, offset), as_json)


def cat(
    stream: Annotated[str, typer.Argument()],
    hour: Annotated[str, typer.Argument(help="UTC: 2026-11-15T07.")],
    start: Annotated[str | None, typer.Option("--from", help="Only lines at or after: 2026-11-15T07:12:31Z.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Only lines before.")] = None,
    grep: Annotated[str | None, typer.Option(help="Only lines that match this regular expression.")] = None,
) -> None:
    """Print `epoch_ms<TAB>message` for each line of an hour, as files have them. Reads only blocks that can match."""
    from tidemark.inspect.places import places_of_hour, read_places
    from tidemark.names import Hour

    first = _parse_time(start) if start else 0
    last = _parse_time(end) if end else sys.maxsize
    pattern = _parse_pattern(grep)
    wanted = Hour.parse(hour)
    with _opened(stream) as (storage, ledger), _progress() as progress, _ended_by_reader():
        known = places_of_hour(storage, ledger, wanted)
        places = [place for place in known if place.block.max_ms >= first and place.block.min_ms < last]
        task = progress.add_task(str(wanted), total=sum(place.block.end - place.block.start for place in places))
        for place, lines in read_places(storage, places):
            for line in lines:
                if first <= line.time_ms < last and (pattern is None or pattern.search(line.message)):
                    sys.stdout.buffer.write(b"%d\t%b\n" % (line.time_ms, line.message))
            progress.advance(task, place.block.end - place.block.start)
        sys.stdout.buffer.flush()


@contextmanager
def _opened(stream: str) -> "Iterator[tuple[Storage, StreamLedger]]":
    from tidemark.config import load_stream
    from tidemark.ledger.stream import StreamLedger
    from tidemark.ledger.zookeeper import open_session
    from tidemark.storage import open_storage

    configured = load_stream(streams_file(), stream)
    with open_session(connection_from_environment) as client:
        yield open_storage(configured.root, connection_from_environment), StreamLedger(client, stream)


@contextmanager
def _ended_by_reader() -> Iterator[None]:
    """`… | head` closes the pipe: that is an end, not an error."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _parse_time(text: str) -> int:
    from tidemark.names import milliseconds

    try:
        return milliseconds(datetime.fromisoformat(text))
    except ValueError:
        raise WrongUse(f"Cannot read {text!r} as a time: wanted one with its zone, 2026-11-15T07:12:31Z") from None


def _parse_pattern(text: str | None) -> "re.Pattern[bytes] | None":
    try:
        return re.compile(text.encode()) if text is not None else None
    except re.error as error:
        raise WrongUse(f"Cannot read {text!r} as a regular expression: {error}") from None


def _show_line(found: "Located", as_json: bool) -> None:
    from tidemark.names import isoformat

    place, line = found.place, found.line
    if as_json:
        value: dict[str, Any] = {
            "shard": place.shard,
            "offset": line.offset,
            "cursor": found.cursor,
            "epoch_ms": line.time_ms,
            "file": place.path,
            "start": place.start,
            "end": place.end,
            "source": place.source,
            "message": line.message.decode(errors="replace"),
        }
        typer.echo(json.dumps(value, ensure_ascii=False))
        return
    typer.echo(f"shard {place.shard} offset {line.offset} (cursor {found.cursor}) at {isoformat(line.time_ms)}")
    typer.echo(f"{place.path} bytes [{place.start}, {place.end})")
    sys.stdout.flush()
    sys.stdout.buffer.write(line.message + b"\n")
    sys.stdout.buffer.flush()


def _piece(piece: Any) -> dict[str, Any]:
    return {
        "source_start": piece.srcFileStartOffset,
        "source_end": piece.srcFileEndOffset,
        "file": piece.destFile,
        "start": piece.destFileStartOffset,
        "end": piece.destFileEndOffset,
        "lines": piece.lines,
    }


def _show_pieces(path: str, pieces: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"source": path, "pieces": pieces}))
        return
    typer.echo(path if pieces else f"{path}: not archived yet")
    for piece in pieces:
        typer.echo(
            f"  [{piece['source_start']}, {piece['source_end']}) → {piece['file']} [{piece['start']}, {piece['end']}), "
            f"{piece['lines']} lines"
        )
