"""Where the time of a task goes: the same splits read again and again, each time one stage further."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import pyarrow as pa
from pyspark.sql import SparkSession

from bench.ours import INTERVAL
from tidemark.consume.results import TaskOrder, splits_of
from tidemark.consume.spark import Source, consume_splits, read_packs
from tidemark.kafka import Offsets
from tidemark.ledger.records import Proof, Shift, ShiftRange, Window
from tidemark.names import HOUR_MS, Shard
from tidemark.storage import Sink, Storage


def time_stages(
    spark: SparkSession, topic: str, ends: Mapping[int, Offsets], options: Mapping[str, str]
) -> dict[str, float]:
    """In seconds, each stage with all before it, warm."""
    shift, source = _shift(ends), Source(topic=topic, options=options)

    def consume(timestamp: str, compression: str) -> None:
        consume_splits(spark, shift, {1: source}, _order(shift, timestamp, compression))

    def read() -> None:
        read_packs(spark, source, [[split] for split in splits_of(shift)]).write.format("noop").mode("overwrite").save()

    def transfer() -> None:
        read_packs(spark, source, [[split] for split in splits_of(shift)]).mapInArrow(_count, "lines long").collect()

    stages: dict[str, Callable[[], None]] = {
        "Kafka source": read,
        "Arrow transfer": transfer,
        "blocks, fast": lambda: consume("kafka", "fast"),
        "blocks, small": lambda: consume("kafka", "small"),
        "blocks, fast, timestamp: message": lambda: consume("message", "fast"),
    }
    for stage in stages.values():
        stage()
    return {name: _seconds(stage) for name, stage in stages.items()}


def _seconds(act: Callable[[], None]) -> float:
    begin = time.monotonic()
    act()
    return time.monotonic() - begin


def _count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"lines": [sum(batch.column("records")[0].as_py() for batch in batches)]})


def _shift(ends: Mapping[int, Offsets]) -> Shift:
    ranges = {
        Shard(1, partition): ShiftRange(lost_from=0, start=0, end=found.stable, proof=Proof.END_OFFSET)
        for partition, found in ends.items()
    }
    return Shift(
        id=INTERVAL.shift,
        number=1,
        start_ms=INTERVAL.start_ms,
        end_ms=INTERVAL.end_ms,
        planned_ms=INTERVAL.end_ms + HOUR_MS,
        timelines_version=1,
        window=Window(past_ms=INTERVAL.start_ms - 24 * HOUR_MS, future_ms=INTERVAL.end_ms + 24 * HOUR_MS),
        timestamp="kafka",
        compression="fast",
        ranges=Shift.columns(ranges),
    )


def _order(shift: Shift, timestamp: str, compression: str) -> TaskOrder:
    return TaskOrder(
        shift=shift.id,
        planned_ms=shift.planned_ms,
        window=shift.window,
        timestamp=timestamp,
        compression=compression,
        storage=cast(Storage, _Nowhere()),
        folder="_tmp",
    )


class _NoSink:
    def write(self, data: bytes | memoryview, /) -> int:
        return memoryview(data).nbytes


class _Nowhere:
    """Takes files and keeps nothing."""

    @contextmanager
    def open_write(self, path: str) -> Iterator[Sink]:
        del path
        yield _NoSink()
