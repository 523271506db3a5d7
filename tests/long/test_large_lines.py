"""A thousand lines of ten megabytes in one partition: every byte arrives, and no worker holds more than a few."""

import hashlib

from bench.memory import WorkerPeak
from pyspark.sql import SparkSession
from tests.pipeline import FIRST, build
from tests.services import Sent, walk

from tidemark.boom.reader import read_lines
from tidemark.stack import Stack

LINES = 1000
SIZE = 10_000_000
MOST_MB = 600


def line(number: int) -> bytes:
    """Unlike any other, and no easy prey for a compressor."""
    seed = hashlib.shake_128(str(number).encode()).hexdigest(SIZE // 200).encode()
    return (seed * 100)[:SIZE]


def test_a_thousand_lines_of_ten_megabytes_stay_within_the_memory_of_a_worker(
    stack: Stack, spark: SparkSession
) -> None:
    pipeline = build(stack, spark, "hdfs", "/large", partitions=1, topic_config={"max.message.bytes": str(SIZE + 1000)})
    pipeline.topic.send(Sent(partition=0, time_ms=FIRST.start_ms + n, value=line(n)) for n in range(LINES))
    with WorkerPeak() as peak:
        pipeline.consume(FIRST)
    assert 0 < peak.megabytes < MOST_MB
    (path,) = [path for path, _ in walk(pipeline.storage) if path.endswith(".bm")]
    with pipeline.storage.open_read(path) as file:
        found = [hashlib.md5(read.message).digest() for read in read_lines(file, path)]
    assert found == [hashlib.md5(line(n)).digest() for n in range(LINES)]
