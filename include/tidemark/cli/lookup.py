"""`tidemark locate` and `tidemark cat`: lines of the archive by index and block, without reading an hour."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemark.cli.lines import line_as_json, line_as_text
from tidemark.cli.progress import progress
from tidemark.cli.words import AsJson, AsJsonLines, HourName, StreamName
from tidemark.environment import connection_from_environment, streams_file
from tidemark.errors import WrongUse

if TYPE_CHECKING:
    from tidemark.inspect.locate import Located
    from tidemark.ledger.stream import StreamLedger
    from tidemark.storage import Storage

_TIME = "2026-11-15T07:12:31Z"


def locate(
    stream: StreamName,
    shard: Annotated[str | None, typer.Argument(metavar="SHARD", help="0001-3: partition 3 of timeline 1.")] = None,
    offset: Annotated[
        int | None,
        typer.Argument(
            metavar="OFFSET", help="Its offset in Kafka; behind --, -1: the last line of the timelines before."
        ),
    ] = None,
    time: Annotated[str | None, typer.Option(metavar="TIME", help=f"The first line at or after: {_TIME}.")] = None,
    source: Annotated[
        str | None, typer.Option(metavar="FILE", help="A file that a shift wrote: where its pieces are.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find a line by offset or time: its file and byte range.

    By SHARD OFFSET or by --time; or the places of a --source. Reads the index and one block, and changes nothing. Exit
    code 1 when there is no such line.
    """
    from tidemark.inspect.locate import locate_offset, locate_source, locate_time
    from tidemark.names import Shard

    wanted = Shard.parse(shard) if shard else None
    if (offset is not None) + (time is not None) + (source is not None) != 1 or (offset is not None and not wanted):
        raise WrongUse("Cannot locate that: wanted SHARD OFFSET, or --time, or --source")
    since = _parse_time(time) if time is not None else None
    pieces = line = None
    with progress(f"Looking in {stream}"), _opened(stream) as (storage, ledger):
        if source is not None:
            pieces = locate_source(storage, ledger, source)
        elif since is not None:
            line = locate_time(storage, ledger, since, wanted)
        elif wanted and offset is not None:
            line = locate_offset(storage, ledger, wanted, offset)
    if pieces:
        _show_pieces(pieces[0], [_piece(piece) for piece in pieces[1]], as_json)
    if line:
        _show_line(line, as_json)


def cat(
    stream: StreamName,
    hour: HourName,
    start: Annotated[str | None, typer.Option("--from", metavar="TIME", help=f"Lines at or after: {_TIME}.")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Lines before.")] = None,
    grep: Annotated[str | None, typer.Option(metavar="REGEX", help="Lines that match this regular expression.")] = None,
    as_json: AsJsonLines = False,
) -> None:
    """Print the lines of an hour as `epoch_ms<TAB>message`.

    Raw bytes, in the order of the files; reads only blocks that can match.
    """
    from tidemark.inspect.places import places_of_hour, read_places
    from tidemark.names import Hour

    first = _parse_time(start) if start else 0
    last = _parse_time(end) if end else sys.maxsize
    pattern = _parse_pattern(grep)
    wanted = Hour.parse(hour)
    show = line_as_json if as_json else line_as_text
    with progress(f"Reading {stream}/{wanted}", beside_output=True) as bar, _opened(stream) as (storage, ledger):
        known = places_of_hour(storage, ledger, wanted)
        places = [place for place in known if place.block.max_ms >= first and place.block.min_ms < last]
        total = sum(place.block.end - place.block.start for place in places)
        for place, lines in read_places(storage, places):
            for line in lines:
                if first <= line.time_ms < last and (pattern is None or pattern.search(line.message)):
                    sys.stdout.buffer.write(show(line.time_ms, line.message))
            bar.advance(total, by=place.block.end - place.block.start)
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


def _parse_time(text: str) -> int:
    from tidemark.names import milliseconds

    try:
        return milliseconds(datetime.fromisoformat(text))
    except ValueError:
        raise WrongUse(f"Cannot read {text!r} as a time: wanted one with its zone, {_TIME}") from None


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
            "file": place.path,
            "start": place.start,
            "end": place.end,
            "source": place.source,
        }
        sys.stdout.buffer.write(line_as_json(line.time_ms, line.message, value))
        sys.stdout.buffer.flush()
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
