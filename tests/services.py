"""What tests need to talk to the shared stack, and an independent look at what it holds."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import fastavro
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidemark.environment import Connection, Connections, parse_connection, variable_of
from tidemark.stack import Stack
from tidemark.storage import Storage


def connections_of(stack: Stack) -> Connections:
    environment = stack.environment()

    def connection(conn_id: str) -> Connection:
        return parse_connection(conn_id, environment[variable_of(conn_id)])

    return connection


def unique(name: str) -> str:
    return f"{name}-{uuid4().hex[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    partition: int
    time_ms: int
    value: bytes | None


class KafkaTopic:
    """A topic of the shared broker, written and read without any of Tidemark's code."""

    def __init__(self, stack: Stack, name: str, partitions: int) -> None:
        self.name = name
        self.partitions = partitions
        self._settings: dict[str, Any] = dict(connections_of(stack)("kafka_main").extra)
        admin = AdminClient(self._settings)
        admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1)])[name].result(30)

    def send(self, records: Iterable[Sent]) -> None:
        producer = Producer(self._settings)
        for record in records:
            producer.produce(self.name, record.value, partition=record.partition, timestamp=record.time_ms)
        assert producer.flush(60) == 0

    def expire_before(self, partition: int, offset: int) -> None:
        admin = AdminClient(self._settings)
        futures = admin.delete_records([TopicPartition(self.name, partition, offset)])
        for future in futures.values():
            future.result(30)

    def read_all(self) -> list[tuple[int, int, int, bytes | None]]:
        """(partition, offset, time, value) of every committed record."""
        consumer = Consumer({**self._settings, "group.id": unique("reader"), "enable.partition.eof": True})
        consumer.assign([TopicPartition(self.name, p, 0) for p in range(self.partitions)])
        found: list[tuple[int, int, int, bytes | None]] = []
        open_partitions = set(range(self.partitions))
        while open_partitions:
            message = consumer.poll(30)
            assert message is not None
            partition = message.partition()
            assert partition is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error.str()
                open_partitions.discard(partition)
                continue
            offset = message.offset()
            assert offset is not None
            found.append((partition, offset, message.timestamp()[1], message.value()))
        consumer.close()
        return found


def walk(storage: Storage, folder: str = "") -> Iterator[tuple[str, int]]:
    for status in storage.list(folder):
        if status.is_folder:
            yield from walk(storage, status.path)
        else:
            yield status.path, status.size


def visible_lines(storage: Storage, folder: str = "") -> list[tuple[int, bytes]]:
    """(time, message) of every line that a simple reader sees, by a strict Avro reader."""
    lines: list[tuple[int, bytes]] = []
    for path, _ in walk(storage, folder):
        if path.endswith(".bm") and not any(part.startswith("_") for part in path.split("/")):
            lines += lines_of(storage, path)
    return lines


def lines_of(storage: Storage, path: str) -> list[tuple[int, bytes]]:
    with storage.open_read(path) as file:
        blocks: Any = fastavro.reader(file)
        return [
            (block["second"] * 1000 + line["ms"], line["message"].encode())
            for block in blocks
            for line in block["logLines"]
        ]


def read_json(storage: Storage, path: str) -> Any:
    return json.loads(storage.read(path))
