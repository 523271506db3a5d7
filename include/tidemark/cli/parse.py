"""`tidemark parse`: try on your own messages what `timestamp: message` makes of them."""

import sys
import time
from typing import Final

_BATCH_BYTES: Final = 1 << 20


def parse() -> None:
    """Try on your own messages what `timestamp: message` makes.

    Reads raw messages, one a line, from standard input and prints `epoch_ms<TAB>line`, `-` without a time. A year that
    a message does not tell is guessed as for a record of this moment.
    """
    now_ms = time.time_ns() // 1_000_000
    while batch := sys.stdin.buffer.readlines(_BATCH_BYTES):
        sys.stdout.buffer.write(_parse_batch([raw.removesuffix(b"\n") for raw in batch], now_ms))
    sys.stdout.buffer.flush()


def _parse_batch(messages: list[bytes], now_ms: int) -> bytes:
    import pyarrow as pa

    from tidemark.consume.lines import parse_messages

    records = pa.array([now_ms] * len(messages), pa.int64())
    columns = parse_messages(pa.array(messages, pa.large_binary()), records)
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return b"".join(b"%b\t%b\n" % (b"%d" % time_ms if had else b"-", line) for time_ms, line, had in rows)
