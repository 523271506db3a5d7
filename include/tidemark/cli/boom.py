"""`tidemark boom`: read, write and verify boom files."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from tidemark.cli.lines import line_as_json, line_as_text, line_from_json, line_from_text
from tidemark.cli.output import standard_input
from tidemark.cli.progress import progress
from tidemark.cli.words import AsJsonLines
from tidemark.errors import AlreadyExists, TidemarkError, WrongUse

if TYPE_CHECKING:
    from tidemark.boom.reader import BoomLine
    from tidemark.boom.verify import Verification
    from tidemark.boom.writer import BoomSummary

app = typer.Typer(help="Read, write and verify boom files.", no_args_is_help=True)

_BATCH_BYTES: Final = 1 << 20
_NEWLINE: Final = b"\n"
_SHOWN: Final = 60
_Parse = Callable[[bytes], tuple[int, bytes]]

Files = Annotated[list[Path], typer.Argument(metavar="FILE", help="A boom file of this machine.")]


class Packing(StrEnum):
    SMALL = "small"
    FAST = "fast"


@app.command()
def read(files: Files, as_json: AsJsonLines = False) -> None:
    """Print the lines of files as `epoch_ms<TAB>message`.

    Raw bytes; in JSON a message that is not UTF-8 is `message_base64`.
    """
    from tidemark.boom.reader import read_lines

    show = _line_as_json if as_json else _line_as_text
    with progress("Reading", beside_output=True) as bar:
        for file in files:
            with _opened(file) as source:
                for line in read_lines(source, str(file)):
                    sys.stdout.buffer.write(show(line))
            bar.advance(len(files))
        sys.stdout.buffer.flush()


@app.command()
def write(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="A new one: nothing is ever overwritten.")],
    compression: Annotated[
        Packing, typer.Option(metavar="small|fast", help="Fewer bytes, or less time.")
    ] = Packing.SMALL,
    as_json: AsJsonLines = False,
) -> None:
    """Write lines of `epoch_ms<TAB>message` to a new file.

    Raw bytes, from standard input; in JSON what `read --json` prints. The file appears under its name when it is whole.
    """
    source = standard_input()
    with _created(out) as sink:
        summary = _write_lines(source, sink, out, compression, line_from_json if as_json else line_from_text)
    typer.echo(f"{out}: {summary.lines} lines, {summary.bytes} bytes, sha256 {summary.digest}", err=True)


@app.command()
def verify(files: Files, as_json: AsJsonLines = False) -> None:
    """Decode every line of files: are they whole?

    Exit code 0 when all are, 1 when one is damaged, 2 when one cannot be read.
    """
    from tidemark.boom.verify import NOT_PROVEN
    from tidemark.boom.verify import verify as verify_file

    is_all_whole, unread = True, list[WrongUse]()
    with progress("Verifying") as bar:
        for file in files:
            bar.advance(len(files))
            try:
                with _opened(file) as source:
                    found = verify_file(source, str(file))
            except WrongUse as error:
                unread.append(error)
                continue
            is_all_whole &= found.is_whole
            bar.say(_verification_as_json(found, NOT_PROVEN) if as_json else _verification_as_text(found))
    if not as_json:
        typer.echo(NOT_PROVEN)
    for each in unread:
        typer.echo(f"tidemark: {each}", err=True)
    if unread or not is_all_whole:
        raise typer.Exit(WrongUse.exit_code if unread else 1)


def _line_as_text(line: "BoomLine") -> bytes:
    return line_as_text(line.time_ms, line.message)


def _line_as_json(line: "BoomLine") -> bytes:
    more = {"create_time": line.create_time, "block_number": line.block_number, "index": line.index}
    return line_as_json(line.time_ms, line.message, more)


def _verification_as_text(found: "Verification") -> str:
    counts = f"{found.lines} lines, {found.blocks} blocks, {found.bytes} bytes"
    if found.is_whole:
        return f"{found.name}: whole: {counts}, sha256 {found.digest}"
    return f"{found.name}: damaged after {counts}: {found.error}"


def _verification_as_json(found: "Verification", not_proven: str) -> str:
    value = {"whole": found.is_whole, **asdict(found), "not_proven": not_proven}
    return json.dumps(value, ensure_ascii=False)


def _write_lines(source: BinaryIO, sink: BinaryIO, out: Path, compression: Packing, parse: _Parse) -> "BoomSummary":
    import pyarrow as pa

    from tidemark.boom.writer import BoomWriter

    now_ms = time.time_ns() // 1_000_000
    writer = BoomWriter(sink, name=out.name, create_time_ms=now_ms, compression=compression.value)
    count = 0
    while batch := source.readlines(_BATCH_BYTES):
        rows = [_parse_row(raw, out, number, parse) for number, raw in enumerate(batch, count + 1)]
        writer.write(
            pa.array([time_ms for time_ms, _ in rows], pa.int64()),
            pa.array([message for _, message in rows], pa.large_binary()),
            pa.array(range(count, count + len(rows)), pa.int64()),
        )
        count += len(rows)
    return writer.close()


def _parse_row(raw: bytes, out: Path, number: int, parse: _Parse) -> tuple[int, bytes]:
    try:
        return parse(raw)
    except ValueError as error:
        found = f"line {number} of the input begins with {raw.removesuffix(_NEWLINE)[:_SHOWN]!r}"
        raise WrongUse(f"Cannot write {out}: {found}; wanted {error}") from None


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    try:
        source = file.open("rb")
    except OSError as error:
        raise WrongUse(f"Cannot read {file}: {error.strerror}") from error
    with source:
        yield source


@contextmanager
def _created(out: Path) -> Iterator[BinaryIO]:
    """A file under a hidden name; it gets its own when the block ends well, else it is removed."""
    if out.exists():
        raise AlreadyExists(f"Cannot write {out}: it exists, and is left as it is")
    hidden = out.with_name(f"_{out.name}.{os.getpid()}")
    try:
        sink = hidden.open("xb")
    except OSError as error:
        raise WrongUse(f"Cannot write {out}: {error.strerror}") from error
    try:
        with sink:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        _give_name(hidden, out)
    except OSError as error:
        raise TidemarkError(f"Cannot write {out}: {error.strerror}") from error
    finally:
        hidden.unlink(missing_ok=True)


def _give_name(hidden: Path, out: Path) -> None:
    from tidemark.storage.local import rename_without_replacing

    try:
        rename_without_replacing(hidden, out)
    except FileExistsError as error:
        raise AlreadyExists(f"Cannot write {out}: it appeared meanwhile, and is left as it is") from error
