"""The writer alone, on one core and in memory, beside fastavro with zlib's level 6; and sizes beside zlib's."""

import hashlib
import io
import multiprocessing
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.corpus import HOUR, Lines, made_lines, real_logs
from bench.one_core import cpu_seconds, keep_to_one_core
from bench.writing_fastavro import FastavroTimes, measure_fastavro
from tidemark.boom.format import Compression
from tidemark.boom.pack import packer_for, unpack
from tidemark.boom.reader import read_blocks
from tidemark.boom.writer import BoomWriter, Sink

MADE = "made lines"
_NAME = "bench.bm"
_BATCH_LINES = 20_000
# As many lines as a real log has are measured as often as it takes to see them on the clock.
_LEAST_LINES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """One corpus, written one way. Seconds are for `lines`; those of packing and digests are a part of them."""

    seconds: float
    packing_seconds: float
    digest_seconds: float
    bytes: int
    bytes_vs_zlib6: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    lines: int
    bytes: int
    fastavro: FastavroTimes
    fast: Packed
    small: Packed


def measure_writers(lines: int, service_logs: Path) -> dict[str, Written]:
    """By corpus; in a process of its own, which keeps to one core."""
    with multiprocessing.get_context("spawn").Pool(1, keep_to_one_core) as pool:
        corpora = {MADE: _joined(made_lines(lines)), **real_logs(service_logs)}
        return {name: pool.apply(_measure, (found,)) for name, found in corpora.items()}


def as_json(written: Mapping[str, Written]) -> dict[str, Any]:
    return {name: asdict(found) for name, found in written.items()}


def _joined(chunks: Iterator[Lines]) -> Lines:
    found = list(chunks)
    return Lines(
        pa.concat_arrays([chunk.times for chunk in found]), pa.concat_arrays([chunk.messages for chunk in found])
    )


def _measure(lines: Lines) -> Written:
    times = -(-_LEAST_LINES // len(lines)) if len(lines) < _LEAST_LINES else 1
    return Written(
        lines=len(lines),
        bytes=lines.size,
        fastavro=measure_fastavro(lines, times),
        fast=_measure_packed(lines, "fast", times),
        small=_measure_packed(lines, "small", times),
    )


def _measure_packed(lines: Lines, compression: Compression, times: int) -> Packed:
    sink = io.BytesIO()
    _write(lines, compression, sink)
    data = sink.getvalue()
    blocks = [unpack(block.data) for block in read_blocks(io.BytesIO(data), _NAME)]
    zlib6 = sum(len(zlib.compress(block, 6, -zlib.MAX_WBITS)) for block in blocks)
    packed = sum(len(block.data) for block in read_blocks(io.BytesIO(data), _NAME))

    def pack() -> None:
        packer = packer_for(compression, blocks[0])
        for block in blocks:
            packer(block)

    return Packed(
        seconds=cpu_seconds(lambda: _write_to_nowhere(lines, compression), times),
        packing_seconds=cpu_seconds(pack, times),
        digest_seconds=cpu_seconds(lambda: hashlib.sha256(data).digest(), times),
        bytes=len(data),
        bytes_vs_zlib6=packed / zlib6,
    )


def _write(lines: Lines, compression: Compression, sink: Sink) -> None:
    writer = BoomWriter(sink, name=_NAME, create_time_ms=HOUR.end_ms, compression=compression)
    offsets = pa.array(np.arange(len(lines)))
    for first in range(0, len(lines), _BATCH_LINES):
        cut = slice(first, first + _BATCH_LINES)
        writer.write(lines.times[cut], lines.messages[cut], offsets[cut])
    writer.close()


def _write_to_nowhere(lines: Lines, compression: Compression) -> None:
    with Path(os.devnull).open("wb") as nowhere:
        _write(lines, compression, nowhere)
