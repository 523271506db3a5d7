"""Joining an hour of many small files on HDFS, beside copying the same bytes, and finding one line in it."""

import hashlib
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from io import BytesIO
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from bench.corpus import HOUR
from bench.memory import WorkerPeak
from bench.ours import INTERVAL
from tidemark import layout
from tidemark.boom.format import BoomBlock, header_of, marker_of
from tidemark.boom.writer import BoomWriter
from tidemark.config import Stream
from tidemark.drive.archive import archive_stream
from tidemark.environment import WEBHDFS, Connections
from tidemark.errors import DataLoss
from tidemark.inspect.locate import locate_offset
from tidemark.ledger import paths
from tidemark.ledger.records import Positions, ShardPosition, Shift, Window, dump
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.manifest import FileKind, Manifest, ManifestFile, ManifestShard, dump_blocks
from tidemark.names import Shard, Task
from tidemark.storage import FileAttributes, Storage, open_storage
from tidemark.storage.webhdfs import WebHdfsStorage

FILES = 2000
"""Of about half a megabyte: an hour of a gigabyte."""
_LINES, _LINE_BYTES = 8600, 120
_TARGETS = 4
_UPLOADS_AT_ONCE = 8
SHARD = Shard(1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds and bytes of an hour; a worker's memory while it was joined; what one `locate` took of time and bytes."""

    bytes: int
    copy_seconds: float
    join_seconds: float
    worker_mb: float
    locate_seconds: float
    locate_bytes: int

    @property
    def join_vs_copy(self) -> float:
        return self.copy_seconds / self.join_seconds


def measure_archive(name: str, connections: Connections, spark: SparkSession, files: int = FILES) -> Measured:
    stream = Stream(
        name=name, cluster="main", topic=name, root=f"hdfs:///bench/{name}", owner="bench", compression="fast"
    )
    storage = open_storage(stream.root, connections)
    sources = _fill_hour(stream, storage, connections, files)
    _copy(spark, storage, sources[:_TARGETS], "_tmp/warm")
    copy_seconds = _copy(spark, storage, sources, "_tmp/copy")
    with WorkerPeak() as peak:
        begin = time.monotonic()
        archive_stream(stream, connections, Task(name=name, attempt=1), lambda: spark)
        join_seconds = time.monotonic() - begin
    seconds, read_bytes = _locate(stream, connections, files * _LINES // 2)
    size = sum(status.size for status in storage.list(layout.hour_folder(HOUR)))
    for status in storage.list(""):
        storage.delete(status.path, recursive=True)
    return Measured(
        bytes=size,
        copy_seconds=copy_seconds,
        join_seconds=join_seconds,
        worker_mb=peak.megabytes,
        locate_seconds=seconds,
        locate_bytes=read_bytes,
    )


def _locate(stream: Stream, connections: Connections, offset: int) -> tuple[float, int]:
    storage = _Counting(stream.root.removeprefix("hdfs://"), connections(WEBHDFS), FileAttributes())
    with open_session(connections) as client:
        begin = time.monotonic()
        found = locate_offset(storage, StreamLedger(client, stream.name), SHARD, offset)
        seconds = time.monotonic() - begin
    if found.line.offset != offset or "/_incoming/" in found.place.path:
        raise DataLoss(f"Cannot measure locate: found {found}")
    return seconds, storage.read_bytes


class _Counting(WebHdfsStorage):
    read_bytes = 0

    def open_read(self, path: str, start: int = 0, end: int | None = None) -> BinaryIO:
        with super().open_read(path, start, end) as file:
            data = file.read()
        self.read_bytes += len(data)
        return BytesIO(data)


def _copy(spark: SparkSession, storage: Storage, sources: list[str], folder: str) -> float:
    """In as many tasks and files as the join has targets, unchecked."""

    def copy(mine: Iterable[tuple[int, list[str]]]) -> Iterator[int]:
        for number, paths_ in mine:
            with storage.open_write(f"{folder}/{number}") as sink:
                for path in paths_:
                    with storage.open_read(path) as file:
                        while data := file.read(1 << 20):
                            sink.write(data)
            yield number

    share = -(-len(sources) // _TARGETS)
    orders = [(number, sources[number * share : (number + 1) * share]) for number in range(_TARGETS)]
    begin = time.monotonic()
    spark.sparkContext.parallelize(orders, _TARGETS).mapPartitions(copy).collect()
    return time.monotonic() - begin


def _fill_hour(stream: Stream, storage: Storage, connections: Connections, files: int) -> list[str]:
    """What a shift leaves that wrote so many files: one block each, all of them alike but for names and offsets."""
    body, block = _block()
    names = [layout.incoming(HOUR, layout.boom_name(INTERVAL.shift, SHARD, number)) for number in range(files)]
    manifest_files, blocks = [], []
    for number, path in enumerate(names):
        first = number * _LINES
        moved = replace(block, runs=((first, first + _LINES),))
        data = header_of(path) + body + marker_of(path)
        blocks.append((path, moved))
        manifest_files.append(_entry(path, data, moved))

    def upload(path: str) -> None:
        storage.create(path, header_of(path) + body + marker_of(path))

    with ThreadPoolExecutor(_UPLOADS_AT_ONCE) as threads:
        list(threads.map(upload, names))
    _commit(stream, storage, connections, tuple(manifest_files), blocks)
    return names


def _block() -> tuple[bytes, BoomBlock]:
    """Lines that pack to about the size of a file: half of each is random."""
    random = np.random.default_rng(6)
    letters = random.integers(97, 123, (_LINES, _LINE_BYTES), dtype=np.uint8)
    messages = [row.tobytes()[:95] + b" a line of the archive's bench" for row in letters]
    sink = BytesIO()
    writer = BoomWriter(sink, name="", create_time_ms=INTERVAL.end_ms, compression="fast")
    times = pa.array(np.full(_LINES, HOUR.start_ms, np.int64))
    writer.write(times, pa.array(messages, pa.binary()), pa.array(range(_LINES), pa.int64()))
    (block,) = writer.close().blocks
    return sink.getvalue()[block.start : block.end - len(marker_of(""))], block


def _entry(path: str, data: bytes, block: BoomBlock) -> ManifestFile:
    return ManifestFile(
        path=path,
        kind=FileKind.LINES,
        hour=str(HOUR),
        shard=str(SHARD),
        lines=_LINES,
        late=0,
        bytes=len(data),
        digest=hashlib.sha256(data).hexdigest(),
        first_offset=block.runs[0][0],
        last_offset=block.runs[0][1] - 1,
        min_ms=block.min_ms,
        max_ms=block.max_ms,
    )


def _commit(
    stream: Stream,
    storage: Storage,
    connections: Connections,
    files: tuple[ManifestFile, ...],
    blocks: list[tuple[str, BoomBlock]],
) -> None:
    lines = len(files) * _LINES
    shift = Shift(
        id=INTERVAL.shift,
        number=1,
        start_ms=INTERVAL.start_ms,
        end_ms=INTERVAL.end_ms,
        planned_ms=INTERVAL.end_ms,
        timelines_version=1,
        window=Window(past_ms=0, future_ms=INTERVAL.end_ms),
        timestamp="kafka",
        compression="fast",
        ranges={},
    )
    position = ShardPosition(start=0, next=lines, watermark_ms=HOUR.end_ms, digest=None)
    positions = Positions(start_ms=HOUR.start_ms, first_ms=HOUR.start_ms).with_shards({SHARD: position})
    row = ManifestShard(start=0, end=lines, records=lines, lines=lines, skewed=0, bad=0, tombstones=0, holes=0)
    manifest = Manifest(
        writer="bench",
        stream=stream.name,
        shift=shift,
        timelines={},
        positions=positions,
        shards={str(SHARD): row},
        gaps=(),
        files=files,
    )
    storage.create(layout.blocks(1, shift.id), dump_blocks(blocks))
    storage.create(layout.manifest(1, shift.id), dump(manifest))
    with open_session(connections) as client:
        ledger = StreamLedger(client, stream.name)
        ledger.prepare()
        client.set(paths.positions(stream.name), dump(positions))
        ledger.add_dirty(HOUR, 1)
