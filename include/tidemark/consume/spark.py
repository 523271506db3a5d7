"""The Spark side of a shift: frozen splits in, results out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from tidemark.consume.packs import range_of, unpack
from tidemark.consume.results import Split, SplitResult, TaskOrder, splits_of
from tidemark.consume.write import RESULT_SCHEMA, write_split
from tidemark.ledger.records import Shift, parse

_SOURCE: Final = "tidemark.consume.KafkaRanges"
# The consumer's own defaults are made for many small topics that may have nothing yet: with these it asks a broker less
# often and for more, and never waits for records, which a frozen range is known to have. What a stream's connection
# says goes before them.
_CONSUMER: Final = {
    "kafka.max.poll.records": str(10_000),
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.wait.ms": str(10),
    "kafka.receive.buffer.bytes": str(1 << 20),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the records of a timeline are; `options` are the consumer's settings behind `kafka.`."""

    topic: str
    options: Mapping[str, str]


def consume_splits(
    spark: SparkSession, shift: Shift, sources: Mapping[int, Source], order: TaskOrder
) -> tuple[SplitResult, ...]:
    """Run one task for each split; `sources` by timeline."""
    by_timeline: dict[int, list[Split]] = {}
    for split in splits_of(shift):
        by_timeline.setdefault(split.shard.timeline, []).append(split)
    frames = [
        read_packs(spark, sources[timeline], splits).mapInArrow(partial(_write, order, tuple(splits)), RESULT_SCHEMA)
        for timeline, splits in by_timeline.items()
    ]
    if not frames:
        return ()
    rows = reduce(DataFrame.union, frames).collect()
    return tuple(parse(SplitResult, row.result.encode()) for row in rows)


def read_packs(spark: SparkSession, source: Source, splits: Sequence[Split]) -> DataFrame:
    """One task a split. A worker gets one row at a time: the source bounds its size, and so the worker's memory."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    ranges = (f"{source.topic}/{split.shard.partition}/{split.start}/{split.end}" for split in splits)
    options = {**_CONSUMER, **source.options, "ranges": ",".join(ranges)}
    return spark.read.format(_SOURCE).options(**options).load()


def _write(order: TaskOrder, splits: Sequence[Split], packs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None, "runs inside a Spark task only"
    first = next(packs, None)
    if first is not None:
        batches = map(unpack, chain([first], packs))
        yield from write_split(order, splits[range_of(first)], context.taskAttemptId(), batches)
