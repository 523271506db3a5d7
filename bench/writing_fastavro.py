"""fastavro with zlib's level 6, as a user of it writes the same lines: a Python object a line (docs/adr/0029).

In a process of its own, which has nothing of ours: our writer's allocator settings would help it, too.
"""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from bench.corpus import HOUR, Lines
from bench.one_core import cpu_seconds, keep_to_one_core
from tidemark.boom.format import AVRO_BLOCK_LIMIT, SCHEMA

Records = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FastavroTimes:
    """Seconds from the columns that our writer begins with, and from records that stand ready."""

    seconds: float
    from_records_seconds: float


def measure_fastavro(lines: Lines, times: int) -> FastavroTimes:
    done = subprocess.run(
        [sys.executable, "-m", "bench.writing_fastavro"], input=pickle.dumps((lines, times)), capture_output=True
    )
    if done.returncode:
        raise RuntimeError(f"Cannot measure fastavro: {done.stderr.decode()[-1000:]}")
    return FastavroTimes(**json.loads(done.stdout))


def _main() -> None:
    lines, times = pickle.load(sys.stdin.buffer)
    keep_to_one_core()
    seconds = cpu_seconds(lambda: _write(_records(lines)), times)
    records = list(_records(lines))
    print(json.dumps({"seconds": seconds, "from_records_seconds": cpu_seconds(lambda: _write(records), times)}))


def _records(lines: Lines) -> Iterator[dict[str, Any]]:
    """The log blocks, by the quickest way from Arrow to Python that was found."""
    seconds, milliseconds = np.divmod(lines.times.to_numpy(), 1000)
    edges = [0, *(np.flatnonzero(np.diff(seconds)) + 1).tolist(), len(seconds)]
    found = [
        {"ms": ms, "message": message}
        for ms, message in zip(milliseconds.tolist(), _texts(lines.messages), strict=True)
    ]
    for number, (start, stop) in enumerate(pairwise(edges)):
        yield {
            "second": int(seconds[start]),
            "createTime": HOUR.end_ms,
            "blockNumber": number,
            "logLines": found[start:stop],
        }


def _texts(messages: pa.LargeBinaryArray) -> list[str]:
    try:
        texts: list[str] = messages.cast(pa.large_string()).to_pylist()
    except pa.ArrowInvalid:
        return [message.decode("utf-8", "replace") for message in messages.to_pylist()]
    return texts


def _write(records: Records | Iterator[dict[str, Any]]) -> None:
    with Path(os.devnull).open("wb") as nowhere:
        fastavro.writer(
            nowhere,
            fastavro.parse_schema(json.loads(SCHEMA)),
            records,
            codec="deflate",
            codec_compression_level=6,
            sync_interval=AVRO_BLOCK_LIMIT,
        )


if __name__ == "__main__":
    _main()
