"""Sample log lines, the same for the same seed, and their way into Kafka."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidemark.environment import Connection
from tidemark.errors import ServiceUnreachable
from tidemark.names import HOUR_MS, Hour, isoformat

_PATHS = ("/", "/search", "/cart", "/cart/checkout", "/help", "/item/{}", "/item/{}/reviews", "/account")
_METHODS = ("GET", "GET", "GET", "GET", "POST")
# librdkafka tells of every passing state of a young broker on standard error.
_QUIET = {"log_level": 0}
_STATUSES = (200, 200, 200, 200, 200, 304, 404, 500)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRecord:
    partition: int
    time_ms: int
    message: bytes


def sample_hour(topic: str, hour: Hour, *, partitions: int, lines: int) -> Iterator[SampleRecord]:
    """Lines of one hour in order of time, spread over the partitions; each begins with its own timestamp."""
    chance = random.Random(f"{topic} {hour}")
    times = sorted(chance.randrange(HOUR_MS) for _ in range(lines))
    for time_ms in times:
        stamp = hour.start_ms + time_ms
        path = chance.choice(_PATHS).format(chance.randrange(10_000))
        text = (
            f"{isoformat(stamp)} {topic} {chance.choice(_METHODS)} {path} {chance.choice(_STATUSES)} "
            f"{chance.randrange(1, 900)}ms user={chance.randrange(50_000)} session={chance.getrandbits(64):016x}"
        )
        yield SampleRecord(partition=chance.randrange(partitions), time_ms=stamp, message=text.encode())


def create_topic(connection: Connection, topic: str, partitions: int) -> bool:
    """False when it is there already."""
    admin = AdminClient({**connection.extra, **_QUIET})
    if topic in admin.list_topics(timeout=30).topics:
        return False
    future = admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])[topic]
    try:
        future.result(timeout=30)
    except KafkaException as error:
        raise ServiceUnreachable(f"Cannot create the topic {topic}: {error.args[0].str()}") from error
    return True


def produce(connection: Connection, topic: str, records: Iterator[SampleRecord]) -> int:
    """Returns when the broker has them all."""
    producer = Producer({**connection.extra, **_QUIET, "linger.ms": 50, "enable.idempotence": True})
    count = 0
    for record in records:
        while True:
            try:
                producer.produce(topic, record.message, partition=record.partition, timestamp=record.time_ms)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
    left = producer.flush(60)
    if left:
        raise ServiceUnreachable(f"Cannot produce to {topic}: {left} of {count} records were not taken")
    return count
