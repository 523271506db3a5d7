"""Questions to a Kafka cluster: partitions, offsets, single records. The records themselves are read by Spark."""

import hashlib
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec

from tidemark.environment import Connection
from tidemark.errors import DataLoss, ServiceUnreachable, WrongUse
from tidemark.kafka_options import java_settings

_TIMEOUT_S = 30.0
_LISTEN_S = 0.2
_ELECTION_S = 20.0
_NO_LEADER = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
_REFUSED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    id: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """Of one partition: `begin` is the first that Kafka still has, `end` the high watermark, `stable` how much of what
    lies below it no open transaction holds back."""

    begin: int
    stable: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long, and how much of a partition, Kafka keeps before it deletes; None: without a bound."""

    time_ms: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Record:
    offset: int
    time_ms: int
    value: bytes | None


def record_digest(offset: int, timestamp_ms: int, value: bytes | None) -> str:
    """Tells a record from any other that may stand at its offset after a log was replaced."""
    head = f"{offset} {timestamp_ms} {-1 if value is None else len(value)} ".encode()
    return hashlib.blake2b(head + (value or b""), digest_size=8).hexdigest()


class _NoLeader(ServiceUnreachable):
    """The topic was just made, or a broker just came or went: asked again soon, Kafka answers."""


class KafkaCluster:
    def __init__(self, connection: Connection) -> None:
        if not connection.extra.get("bootstrap.servers"):
            raise WrongUse(f"Cannot use the connection {connection.conn_id}: its extra has no bootstrap.servers")
        # What the jobs could not use is refused before anything is planned.
        java_settings(connection)
        self._heard: deque[KafkaError] = deque(maxlen=100)
        self._settings: dict[str, Any] = {**connection.extra, "log_level": 0, "error_cb": self._heard.append}
        self._name = f"Kafka at {connection.extra['bootstrap.servers']} ({connection.conn_id})"
        try:
            self._admin = AdminClient(self._settings)
        except KafkaException as error:
            raise WrongUse(f"Cannot use the connection {connection.conn_id}: {error.args[0].str()}") from error

    def describe(self, topic: str) -> Topic:
        futures = self._admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT_S)
        found = self._answer(futures[topic], f"describe topic {topic}")
        return Topic(name=topic, id=str(found.topic_id), partitions=len(found.partitions))

    def offsets(self, topic: str, partitions: Sequence[int], *, patience_s: float = 0) -> dict[int, Offsets]:
        """The ends of this moment; transactions that are open below them have so long to end.

        Last stable offsets are asked after the ends: on a topic that is written to all the time they would else
        lie below them whether a transaction is open or not.
        """
        begin = self._list(topic, partitions, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        end = self._list(topic, partitions, _LATEST, IsolationLevel.READ_UNCOMMITTED)
        deadline = time.monotonic() + patience_s
        while True:
            stable = self._list(topic, partitions, _LATEST, IsolationLevel.READ_COMMITTED)
            if time.monotonic() >= deadline or all(stable[p] >= end[p] for p in partitions):
                return {p: Offsets(begin=begin[p], stable=min(stable[p], end[p]), end=end[p]) for p in partitions}
            time.sleep(_LISTEN_S)

    def offsets_at(self, topic: str, partitions: Sequence[int], time_ms: int) -> dict[int, int]:
        """The first offset at or after a record time; the end where there is none."""
        spec: OffsetSpec = OffsetSpec.for_timestamp(time_ms)
        found = self._list(topic, partitions, spec, IsolationLevel.READ_UNCOMMITTED)
        ends = self._list(topic, partitions, _LATEST, IsolationLevel.READ_UNCOMMITTED)
        return {p: ends[p] if found[p] < 0 else found[p] for p in partitions}

    def has_append_time(self, topic: str) -> bool:
        """Whether the broker sets the records' times, so that they never fall as offsets rise."""
        return self._settings_of(topic)["message.timestamp.type"] == "LogAppendTime"

    def is_compacted(self, topic: str) -> bool:
        """Whether single records may vanish from the log."""
        return "compact" in self._settings_of(topic)["cleanup.policy"].split(",")

    def retention(self, topic: str) -> Retention:
        settings = self._settings_of(topic)
        if "delete" not in settings["cleanup.policy"]:
            return Retention(time_ms=None, bytes=None)
        time_ms, size = int(settings["retention.ms"]), int(settings["retention.bytes"])
        return Retention(time_ms=time_ms if time_ms >= 0 else None, bytes=size if size >= 0 else None)

    def digests(self, topic: str, offsets: Mapping[int, int]) -> dict[int, str]:
        """The digest of the record at each partition's offset; none where a marker or a hole stands there."""
        if not offsets:
            return {}
        consumer = self._consumer("read_uncommitted")
        try:
            consumer.assign([TopicPartition(topic, p, offset) for p, offset in offsets.items()])
            return self._poll_one_each(consumer, topic, offsets)
        finally:
            consumer.close()

    def check_readable(self, topic: str, offsets: Mapping[int, Offsets]) -> None:
        """Raise WrongUse when records may not be fetched: offsets are told to whoever may describe a topic.

        Fetches from the end of one partition: the right to read is asked for even where there is nothing.
        """
        self.digests(topic, {partition: row.end for partition, row in [*offsets.items()][:1]})

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Record]:
        """The committed records of [start, end), one by one: for looking, not for moving data."""
        if start >= end:
            return
        consumer = self._consumer("read_committed")
        try:
            consumer.assign([TopicPartition(topic, partition, start)])
            while True:
                message = self._poll(consumer, topic)
                if not self._is_answer(message, topic):
                    continue
                offset = message.offset()
                assert offset is not None
                if message.error() is None and offset < end:
                    yield Record(offset, message.timestamp()[1], message.value())
                # The end of the partition is an answer, too, behind markers and holes.
                if message.error() is not None or offset >= end - 1:
                    return
        finally:
            consumer.close()

    def _settings_of(self, topic: str) -> dict[str, str]:
        asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
        future = self._admin.describe_configs([asked], request_timeout=_TIMEOUT_S)[asked]
        settings = self._answer(future, f"describe the settings of topic {topic}")
        return {name: entry.value for name, entry in settings.items()}

    def _consumer(self, isolation: str) -> Consumer:
        return Consumer(
            {
                **self._settings,
                "group.id": "tidemark-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "isolation.level": isolation,
            }
        )

    def _poll(self, consumer: Consumer, topic: str) -> Message:
        message = consumer.poll(_TIMEOUT_S)
        if message is None:
            raise ServiceUnreachable(f"Cannot read {topic}: {self._name} gave no record for {_TIMEOUT_S:.0f} s")
        return message

    def _poll_one_each(self, consumer: Consumer, topic: str, offsets: Mapping[int, int]) -> dict[int, str]:
        waiting = set(offsets)
        digests: dict[int, str] = {}
        while waiting:
            message = self._poll(consumer, topic)
            partition = message.partition()
            if partition not in waiting or not self._is_answer(message, topic):
                continue
            waiting.remove(partition)
            consumer.pause([TopicPartition(topic, partition)])
            if message.error() is None and message.offset() == offsets[partition]:
                digests[partition] = record_digest(offsets[partition], message.timestamp()[1], message.value())
        return digests

    def _is_answer(self, message: Message, topic: str) -> bool:
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise DataLoss(f"Cannot read {topic}-{message.partition()}: {error.str()}")
        if error.code() in _REFUSED:
            raise WrongUse(f"Cannot read {topic}: {self._name} refuses it: {error.str()}; wanted the right to read it")
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            # librdkafka looks for the group's coordinator unasked; partitions are assigned, no group is joined.
            return False
        if error.retriable():
            return False
        raise ServiceUnreachable(f"Cannot read {topic} from {self._name}: {error.str()}")

    def _list(
        self, topic: str, partitions: Sequence[int], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[int, int]:
        deadline = time.monotonic() + _ELECTION_S
        while True:
            try:
                return self._list_once(topic, partitions, spec, isolation)
            except _NoLeader:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_LISTEN_S)

    def _list_once(
        self, topic: str, partitions: Sequence[int], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[int, int]:
        asked = {TopicPartition(topic, p): spec for p in partitions}
        futures = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=_TIMEOUT_S)
        return {tp.partition: self._answer(future, f"list offsets of {topic}").offset for tp, future in futures.items()}

    def _answer(self, future: Any, act: str) -> Any:
        try:
            return self._wait(future, act)
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise WrongUse(f"Cannot {act}: {self._name} has no such topic") from error
            if cause.code() in _REFUSED:
                raise WrongUse(f"Cannot {act}: {self._name} refuses it: {cause.str()}") from error
            kind = _NoLeader if cause.code() in _NO_LEADER else ServiceUnreachable
            raise kind(f"Cannot {act}: {self._name} says {cause.str()}") from error
        except TimeoutError as error:
            raise ServiceUnreachable(f"Cannot {act}: {self._name} does not answer") from error

    def _wait(self, future: Any, act: str) -> Any:
        """librdkafka tries again and again what is refused: that is told at once."""
        deadline = time.monotonic() + _TIMEOUT_S + 5
        while True:
            try:
                return future.result(timeout=_LISTEN_S)
            except TimeoutError:
                self._admin.poll(0)
                self._raise_refusal(act)
                if time.monotonic() > deadline:
                    raise

    def _raise_refusal(self, act: str) -> None:
        heard = {error.code(): error for error in self._heard}
        refusal = heard.get(KafkaError._AUTHENTICATION)
        if refusal:
            raise WrongUse(f"Cannot {act}: {self._name} refuses the login: {refusal.str()}")
        broken = heard.get(KafkaError._SSL)
        if broken and KafkaError._ALL_BROKERS_DOWN in heard:
            raise ServiceUnreachable(f"Cannot {act}: {self._name} cannot be talked to over TLS: {broken.str()}")
