"""The Kafka source of our own, beside an independent consumer."""

from itertools import groupby

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from tests.services import KafkaTopic, Sent, connections_of, unique

from tidemark.consume.packs import range_of, unpack
from tidemark.consume.results import Split
from tidemark.consume.spark import Source, read_packs
from tidemark.kafka import spark_options
from tidemark.names import Shard
from tidemark.stack import Stack

MOST_BYTES = 1 << 20
MOST_RECORDS = 1 << 15
LARGEST = 3 * MOST_BYTES

Found = tuple[int, int, int, bytes | None]


@pytest.fixture
def topic(stack: Stack) -> KafkaTopic:
    return KafkaTopic(stack, unique("ranges"), 2, config={"max.message.bytes": str(LARGEST + 1000)})


def read(
    spark: SparkSession, stack: Stack, topic: KafkaTopic, *ranges: tuple[int, int, int], tasks: int = 1
) -> list[list[Found]]:
    """(range, offset, time, value) of each record, by pack, of these partitions and offsets."""
    splits = [
        Split(shard=Shard(1, partition), index=0, order=order, start=start, end=end)
        for order, (partition, start, end) in enumerate(ranges)
    ]
    source = Source(topic=topic.name, options=spark_options(connections_of(stack)("kafka_main")))
    shares = [splits[number::tasks] for number in range(tasks)]
    packs = read_packs(spark, source, shares).toArrow().to_batches(max_chunksize=1)
    return [
        [(range_of(pack), row["offset"], row["timestamp"], row["value"]) for row in unpack(pack).to_pylist()]
        for pack in packs
    ]


def flat(packs: list[list[Found]]) -> list[Found]:
    return [found for pack in packs for found in pack]


def sent(values: list[bytes | None], partition: int = 0) -> list[Sent]:
    return [
        Sent(partition=partition, time_ms=1_700_000_000_000 - n, value=value, key=b"key")
        for n, value in enumerate(values)
    ]


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_every_record_of_a_range_and_no_other_is_read_in_order(
    spark: SparkSession, stack: Stack, topic: KafkaTopic, tasks: int
) -> None:
    topic.send(sent([f"line {n}".encode() for n in range(100)]) + sent([b"other"] * 50, partition=1))
    packs = read(spark, stack, topic, (0, 10, 40), (1, 0, 50), (0, 40, 100), tasks=tasks)
    everything = {(partition, offset): (when, value) for partition, offset, when, value in topic.read_all()}
    wanted = [(0, offset) for offset in range(10, 40)]
    wanted += [(1, offset) for offset in range(50)]
    wanted += [(0, offset) for offset in range(40, 100)]
    if tasks == 2:
        wanted = wanted[:30] + wanted[80:] + wanted[30:80]
    assert [found[1:] for found in flat(packs)] == [
        (offset, *everything[partition, offset]) for partition, offset in wanted
    ]
    assert [number for number, _ in groupby(found[0] for found in flat(packs))] == [0, 1, 2]
    assert [bool(pack) for pack in packs] == [True, False] * 3, "each range ends with a pack without records"


def test_a_tombstone_has_no_value_and_an_empty_line_has_an_empty_one(
    spark: SparkSession, stack: Stack, topic: KafkaTopic
) -> None:
    values = [b"", None, b"\xff\x00 bytes", None, b""]
    topic.send(sent(values))
    assert [value for _, _, _, value in flat(read(spark, stack, topic, (0, 0, 5)))] == values


def test_a_pack_is_small_whatever_the_size_of_lines_and_no_line_is_too_large(
    spark: SparkSession, stack: Stack, topic: KafkaTopic
) -> None:
    sizes = [*[10] * (MOST_RECORDS + 5), LARGEST, 7, *[MOST_BYTES // 3] * 8, MOST_BYTES + 1, MOST_BYTES, 1]
    topic.send(sent([bytes(size) for size in sizes]))
    packs = read(spark, stack, topic, (0, 0, len(sizes)))
    assert [len(value or b"") for *_, value in flat(packs)] == sizes
    assert len(packs[0]) == MOST_RECORDS
    for pack in packs:
        assert len(pack) <= MOST_RECORDS
        assert len(pack) == 1 or sum(len(value or b"") for *_, value in pack) <= MOST_BYTES


def test_of_transactions_only_what_was_committed_is_read_and_markers_at_the_end_hold_nothing_up(
    spark: SparkSession, stack: Stack, topic: KafkaTopic
) -> None:
    topic.send_in_transaction(sent([b"kept"]), commit=True)
    topic.send_in_transaction(sent([b"aborted"]), commit=False)
    assert [value for *_, value in flat(read(spark, stack, topic, (0, 0, 4)))] == [b"kept"]
    assert read(spark, stack, topic, (0, 1, 4)) == [[]]


def test_a_range_that_kafka_no_longer_has_is_an_error(spark: SparkSession, stack: Stack, topic: KafkaTopic) -> None:
    topic.send(sent([b"line"] * 10))
    topic.expire_before(0, 5)
    with pytest.raises(Py4JJavaError, match=rf"Cannot read {topic.name}-0 \[3, 10\): .* is out of range"):
        read(spark, stack, topic, (0, 3, 10))
