"""The Spark side of a shift: frozen splits in, results out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import chain, groupby
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from tidemark.consume.packs import range_of, unpack
from tidemark.consume.results import Split, SplitResult, TaskOrder, splits_of
from tidemark.consume.spread import spread
from tidemark.consume.write import RESULT_SCHEMA, write_split
from tidemark.ledger.records import Shift, parse

_SOURCE: Final = "tidemark.consume.KafkaRanges"
# Enough that the last ones to end leave no core idle for long, few enough that thousands of partitions are no burden.
_TASKS_A_CORE: Final = 4
_TASK_RECORDS: Final = 1_000_000
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
    """Where the records of a timeline are; `options` are the consumer's settings, see `tidemark.kafka_options`."""

    topic: str
    options: Mapping[str, str] = field(repr=False)


def consume_splits(
    spark: SparkSession, shift: Shift, sources: Mapping[int, Source], order: TaskOrder
) -> tuple[SplitResult, ...]:
    """`sources` by timeline. Large splits have a task each, small ones share some: a task costs time of its own."""
    by_timeline: dict[int, list[Split]] = {}
    for split in splits_of(shift):
        by_timeline.setdefault(split.shard.timeline, []).append(split)
    frames = []
    for timeline, splits in by_timeline.items():
        shares = spread(splits, _tasks(spark, splits))
        write = partial(_write, order, tuple(chain.from_iterable(shares)))
        frames.append(read_packs(spark, sources[timeline], shares).mapInArrow(write, RESULT_SCHEMA))
    if not frames:
        return ()
    rows = reduce(DataFrame.union, frames).collect()
    return tuple(parse(SplitResult, row.result.encode()) for row in rows)


def _tasks(spark: SparkSession, splits: Sequence[Split]) -> int:
    records = sum(split.end - split.start for split in splits)
    return max(_TASKS_A_CORE * spark.sparkContext.defaultParallelism, records // _TASK_RECORDS)


def read_packs(spark: SparkSession, source: Source, shares: Sequence[Sequence[Split]]) -> DataFrame:
    """One task a share. A worker gets one row at a time: the source bounds its size, and so the worker's memory.

    A row's `range` counts the splits of all shares.
    """
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    tasks = (",".join(f"{source.topic}/{s.shard.partition}/{s.start}/{s.end}" for s in share) for share in shares)
    options = {**_CONSUMER, **source.options, "ranges": ";".join(tasks)}
    return spark.read.format(_SOURCE).options(**options).load()


def _write(order: TaskOrder, splits: Sequence[Split], packs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None, "runs inside a Spark task only"
    for number, found in groupby(packs, range_of):
        yield from write_split(order, splits[number], context.taskAttemptId(), map(unpack, found))
