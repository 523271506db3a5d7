"""Topics whose producers never rest: records that come between two questions must not look like an open transaction."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from tests.pipeline import FIRST, Pipeline, build
from tests.services import Sent, connections_of, unique, visible_lines
from tests.waiting import wait_until

from tidemark.ledger.records import Proof
from tidemark.names import HOUR_MS, Hour
from tidemark.stack import Stack

PLANS = 5


@pytest.fixture
def pipeline(stack: Stack, spark: SparkSession) -> Pipeline:
    return build(stack, spark, "hdfs", "/busy", partitions=1)


def proofs(pipeline: Pipeline, shift: str) -> set[Proof]:
    node = pipeline.ledger(lambda ledger: ledger.shift(shift))
    assert node is not None
    assert node.value.shift is not None
    return {found.proof for found in node.value.shift.shards.values()}


@contextmanager
def written_all_the_time(pipeline: Pipeline) -> Iterator[None]:
    is_over = Event()

    def produce() -> None:
        producer = Producer({**connections_of(pipeline.stack)("kafka_main").extra, "linger.ms": 0})
        while not is_over.is_set():
            producer.produce(pipeline.topic.name, b"and another", partition=0, timestamp=FIRST.start_ms)
            producer.flush(30)

    thread = Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_topic_that_is_written_to_all_the_time_is_proven_by_every_plan(pipeline: Pipeline) -> None:
    pipeline.topic.send([Sent(partition=0, time_ms=FIRST.start_ms, value=b"a line")])
    with written_all_the_time(pipeline):
        for number in range(PLANS):
            hour = Hour(FIRST.start_ms + number * HOUR_MS)
            assert proofs(pipeline, pipeline.plan(hour)) == {Proof.END_OFFSET}
            pipeline.consume(hour)


def test_a_transaction_that_is_open_when_the_end_is_asked_for_is_waited_for(pipeline: Pipeline) -> None:
    settings = connections_of(pipeline.stack)("kafka_main").extra
    producer = Producer({**settings, "transactional.id": unique("short")})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(pipeline.topic.name, b"in a transaction", partition=0, timestamp=FIRST.start_ms)
    assert producer.flush(30) == 0

    def commit() -> None:
        time.sleep(2)
        producer.commit_transaction(30)

    thread = Thread(target=commit)
    thread.start()
    shift = pipeline.plan(FIRST)
    thread.join()
    assert proofs(pipeline, shift) == {Proof.END_OFFSET}


def test_producers_that_never_rest_between_long_transactions_delay_a_flag_by_one_run_and_no_more(
    stack: Stack, spark: SparkSession
) -> None:
    # A plan waits for the grace that transactions end; these last longer.
    pipeline = build(stack, spark, "hdfs", "/busy", partitions=1, grace="2s", max_clock_skew="1s")
    first, second, third = (Hour(FIRST.start_ms + number * HOUR_MS) for number in range(3))
    transaction = begin_transaction(pipeline, first)
    assert pipeline.run(first) == []
    transaction = end_behind_the_next(pipeline, transaction, first, second)
    assert pipeline.run(second) == [f"{first} 1"]
    transaction = end_behind_the_next(pipeline, transaction, second, third)
    assert pipeline.run(third) == [f"{second} 1"]
    transaction.abort_transaction(30)
    written = [(hour.start_ms, str(hour).encode()) for hour in (first, second)]
    assert sorted(visible_lines(pipeline.storage)) == written


def begin_transaction(pipeline: Pipeline, hour: Hour) -> Producer:
    settings = connections_of(pipeline.stack)("kafka_main").extra
    producer = Producer({**settings, "transactional.id": unique("long")})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(pipeline.topic.name, str(hour).encode(), partition=0, timestamp=hour.start_ms)
    assert producer.flush(30) == 0
    return producer


def end_behind_the_next(pipeline: Pipeline, transaction: Producer, hour: Hour, following: Hour) -> Producer:
    """There is no moment without one that is open."""
    newer = begin_transaction(pipeline, following)
    transaction.commit_transaction(30)
    # The broker writes its markers after it has answered.
    written = (hour.start_ms, str(hour).encode())
    wait_until(lambda: written in [row[2:] for row in pipeline.topic.read_all()], "the end of the transaction")
    return newer
