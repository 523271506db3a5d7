"""`tidemark parse`: try on your own messages what `timestamp: message` makes of them."""

import io
import sys
import time
from collections.abc import Iterator
from typing import Final

from tidemark.cli.output import standard_input

_BATCH_BYTES: Final = 1 << 20


def parse() -> None:
    """Try on your own messages what `timestamp: message` makes.

    Reads raw messages, one a line, from standard input and prints `epoch_ms<TAB>line`, `-` without a time. A year that
    a message does not tell is guessed as for a record of this moment.
    """
    now_ms = time.time_ns() // 1_000_000
    for messages in _lines_as_they_come(standard_input()):
        sys.stdout.buffer.write(_parse_batch(messages, now_ms))
        sys.stdout.buffer.flush()


def _lines_as_they_come(source: io.BufferedReader) -> Iterator[list[bytes]]:
    """All lines that are there, as soon as one is: whoever types it, or follows a log, does not wait for more."""
    begun: list[bytes] = []
    while data := source.read1(_BATCH_BYTES):
        *ended, rest = data.split(b"\n")
        if ended:
            yield [b"".join((*begun, ended[0])), *ended[1:]]
            begun = []
        begun.append(rest)
    if last := b"".join(begun):
        yield [last]


def _parse_batch(messages: list[bytes], now_ms: int) -> bytes:
    import pyarrow as pa

    from tidemark.consume.lines import parse_messages

    records = pa.array([now_ms] * len(messages), pa.int64())
    columns = parse_messages(pa.array(messages, pa.large_binary()), records)
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return b"".join(b"%b\t%b\n" % (b"%d" % time_ms if had else b"-", line) for time_ms, line, had in rows)
