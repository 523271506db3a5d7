"""Topics to read from."""

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer

from bench.corpus import Lines, made_lines
from tidemark.demo.sample import create_topic
from tidemark.environment import Connection
from tidemark.errors import ServiceUnreachable

PARTITIONS = 4
_SETTINGS = {"log_level": 0, "linger.ms": 100, "batch.size": 1 << 20, "queue.buffering.max.kbytes": 1 << 18}


def fill_topic(connection: Connection, topic: str, lines: int) -> int:
    """Made lines, line by line to the partitions in turn; the number of their bytes."""
    create_topic(connection, topic, PARTITIONS)
    producer = Producer({**connection.extra, **_SETTINGS})
    size = 0
    for chunk in made_lines(lines):
        size += chunk.size
        for partition in range(PARTITIONS):
            _send(producer, topic, partition, chunk)
    flush(producer, topic)
    return size


def mark_partitions(connection: Connection, topic: str, partitions: int, time_ms: int) -> None:
    """One tombstone in each of many partitions: a record that needs no file."""
    create_topic(connection, topic, partitions)
    producer = Producer({**connection.extra, **_SETTINGS})
    for partition in range(partitions):
        producer.produce(topic, None, partition=partition, timestamp=time_ms)
    flush(producer, topic)


def flush(producer: Producer, topic: str) -> None:
    left = producer.flush(120)
    if left:
        raise ServiceUnreachable(f"Cannot fill {topic}: {left} records were not taken")


def _send(producer: Producer, topic: str, partition: int, lines: Lines) -> None:
    rows = pa.array(np.arange(partition, len(lines), PARTITIONS))
    for time, message in zip(lines.times.take(rows).to_pylist(), lines.messages.take(rows).to_pylist(), strict=True):
        while True:
            try:
                producer.produce(topic, message, partition=partition, timestamp=time)
                break
            except BufferError:
                producer.poll(0.05)
    producer.poll(0)
