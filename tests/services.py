"""What tests need to talk to the shared stack, and an independent look at what it holds."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import fastavro
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.waiting import wait_until

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
    key: bytes | None = None


class KafkaTopic:
    """A topic of the shared broker, written and read without any of Tidemark's code."""

    def __init__(self, stack: Stack, name: str, partitions: int, *, config: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.partitions = partitions
        self._settings: dict[str, Any] = dict(connections_of(stack)("kafka_main").extra)
        self._config = dict(config or {})
        self._create()

    def _create(self) -> None:
        new = NewTopic(self.name, num_partitions=self.partitions, replication_factor=1, config=self._config)
        admin = AdminClient(self._settings)
        admin.create_topics([new])[self.name].result(30)

    def send(self, records: Iterable[Sent]) -> None:
        producer = self._producer()
        self._produce(producer, records)
        assert producer.flush(60) == 0

    def send_in_transaction(self, records: Iterable[Sent], *, commit: bool) -> None:
        producer = self._producer({"transactional.id": unique("transaction")})
        producer.init_transactions(30)
        producer.begin_transaction()
        self._produce(producer, records)
        assert producer.flush(60) == 0
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    def _producer(self, settings: Mapping[str, Any] | None = None) -> Producer:
        largest = self._config.get("max.message.bytes", "1000000")
        return Producer({**self._settings, "message.max.bytes": largest, **(settings or {})})

    def _produce(self, producer: Producer, records: Iterable[Sent]) -> None:
        for record in records:
            while True:
                try:
                    producer.produce(
                        self.name, record.value, record.key, partition=record.partition, timestamp=record.time_ms
                    )
                    break
                except BufferError:
                    producer.poll(1)

    def add_partitions(self, count: int) -> None:
        self.partitions += count
        admin = AdminClient(self._settings)
        admin.create_partitions([NewPartitions(self.name, self.partitions)])[self.name].result(30)

    def expire_before(self, partition: int, offset: int) -> None:
        admin = AdminClient(self._settings)
        futures = admin.delete_records([TopicPartition(self.name, partition, offset)])
        for future in futures.values():
            future.result(30)

    def make_again(self) -> None:
        admin = AdminClient(self._settings)
        admin.delete_topics([self.name])[self.name].result(30)
        wait_until(lambda: self.name not in admin.list_topics(timeout=10).topics, f"{self.name} is deleted")
        self._create()

    def let_the_broker_set_times(self) -> None:
        append_time = ConfigEntry(
            "message.timestamp.type", "LogAppendTime", incremental_operation=AlterConfigOpType.SET
        )
        topic = ConfigResource(ConfigResource.Type.TOPIC, self.name, incremental_configs=[append_time])
        admin = AdminClient(self._settings)
        admin.incremental_alter_configs([topic])[topic].result(30)

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
