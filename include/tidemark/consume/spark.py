"""The Spark side of a shift: frozen splits in, results out."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import unix_millis

from tidemark.consume.results import Split, SplitResult, TaskOrder, splits_of
from tidemark.consume.write import RESULT_SCHEMA, write_split
from tidemark.ledger.records import Shift, parse

# A batch is what the JVM hands to Python at once: many short lines, but never more bytes than these and one line.
# Lines may have ten megabytes, and a worker holds a batch several times over.
_BATCHES: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(20_000),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 << 20),
}
# The consumer's own defaults are made for many small topics that may have nothing yet: with these it asks a broker less
# often and for more, and never waits for records, which a frozen range is known to have. What a stream's connection
# says goes before them.
_CONSUMER: Final = {
    "kafka.max.poll.records": str(10_000),
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.wait.ms": str(10),
    "kafka.receive.buffer.bytes": str(1 << 20),
}


def consume_splits(
    spark: SparkSession, shift: Shift, topics: Mapping[int, str], options: Mapping[str, str], order: TaskOrder
) -> tuple[SplitResult, ...]:
    """Run one task for each split; `topics` by timeline."""
    limit_batches(spark)
    frames = [
        read_records(spark, topics[timeline], options, splits).mapInArrow(
            partial(_write, replace(order, splits={split.shard.partition: split for split in splits})),
            RESULT_SCHEMA,
        )
        for timeline, splits in _rounds(splits_of(shift))
    ]
    if not frames:
        return ()
    rows = reduce(DataFrame.union, frames).collect()
    return tuple(parse(SplitResult, row.result.encode()) for row in rows)


def limit_batches(spark: SparkSession) -> None:
    """The session's settings, not its user's, bound a worker's memory; the bytes written do not depend on them."""
    for name, value in _BATCHES.items():
        spark.conf.set(name, value)


def read_records(spark: SparkSession, topic: str, options: Mapping[str, str], splits: Sequence[Split]) -> DataFrame:
    """One range a partition and no minimum of partitions: Spark makes exactly one task of each."""
    return (
        spark.read.format("kafka")
        .options(**{**_CONSUMER, **options})
        .option("assign", json.dumps({topic: [split.shard.partition for split in splits]}))
        .option("startingOffsets", json.dumps({topic: {str(s.shard.partition): s.start for s in splits}}))
        .option("endingOffsets", json.dumps({topic: {str(s.shard.partition): s.end for s in splits}}))
        .option("failOnDataLoss", "true")
        .option("kafka.isolation.level", "read_committed")
        .load()
        .select("partition", "offset", unix_millis("timestamp").alias("timestamp"), "value")
    )


def _rounds(splits: Sequence[Split]) -> list[tuple[int, list[Split]]]:
    """The k-th splits of all partitions of a timeline together, since a Kafka source takes one range a partition."""
    rounds: dict[tuple[int, int], list[Split]] = {}
    for split in splits:
        rounds.setdefault((split.shard.timeline, split.index), []).append(split)
    return [(timeline, members) for (timeline, _), members in sorted(rounds.items())]


def _write(order: TaskOrder, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None, "runs inside a Spark task only"
    yield from write_split(order, context.taskAttemptId(), batches)
