"""Whether the living services bear what is configured: for the time before a stream's first run, and after a change."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from rich.filesize import decimal

from tidemark import layout
from tidemark.config import Stream
from tidemark.drive.services import attributes_of
from tidemark.environment import WEBHDFS, ZOOKEEPER, Connection, Connections, kafka_connection
from tidemark.errors import ServiceUnreachable, TidemarkError, WrongUse
from tidemark.inspect.board import Board, Calendar, last_days
from tidemark.kafka import KafkaCluster, Offsets
from tidemark.ledger.records import ShardPosition
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import ask, open_session
from tidemark.lineage import live
from tidemark.names import DAY_MS, HOUR_MS, Hour, duration_ms
from tidemark.storage import Space, open_file_system, open_storage
from tidemark.storage.probe import probe_writing

T = TypeVar("T")

_RETRY_SECONDS: Final = 5.0
_SIDE_BY_SIDE: Final = 2
"""A line's file and the archive that takes it up exist at once for a while."""


class Verdict(StrEnum):
    OK = "ok"
    WRONG = "wrong"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"
    """The service answers, and does not tell this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`stream` is None for what all streams need."""

    stream: str | None
    subject: str
    verdict: Verdict
    found: str
    wanted: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A topic that plans read, with the positions of its open shards by partition."""

    cluster: str
    topic: str
    positions: Mapping[int, ShardPosition] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.topic} on {self.cluster}"


def check_streams(
    streams: Sequence[Stream],
    connections: Connections,
    now_ms: int,
    on_stream: Callable[[int], None] = lambda _: None,
) -> list[Check]:
    """What fails is a finding, and hides nothing of the rest; a service that is away is waited for once.

    `on_stream` is told after each one how many there are.
    """
    hasty = _in_haste(connections)
    with ExitStack() as opened:
        client: KazooClient | None = None
        try:
            client = opened.enter_context(open_session(hasty))
            found = [_check_chroot(client)]
        except TidemarkError as error:
            found = [_failed(None, "zookeeper", error)]
        checker = _Checker(client=client, connections=hasty, now_ms=now_ms)
        for stream in streams:
            found += checker.check(stream)
            on_stream(len(streams))
        return found


def _in_haste(connections: Connections) -> Connections:
    """Who asks wants to know that HDFS is away, not to wait until it comes back."""

    def connection(conn_id: str) -> Connection:
        found = connections(conn_id)
        return replace(found, extra={**found.extra, "retry_seconds": _RETRY_SECONDS}) if conn_id == WEBHDFS else found

    return connection


def _check_chroot(client: KazooClient) -> Check:
    try:
        node = ask(client.create_async, "/check-", ephemeral=True, sequence=True)
        ask(client.delete_async, node)
    except KazooException as error:
        raise WrongUse(f"Cannot write below {client.chroot}: ZooKeeper says {type(error).__name__}") from error
    return Check(stream=None, subject="zookeeper", verdict=Verdict.OK, found=f"nodes can be made below {client.chroot}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checker:
    client: KazooClient | None
    connections: Connections
    now_ms: int
    away: dict[str, ServiceUnreachable] = field(default_factory=dict)

    def check(self, stream: Stream) -> Iterator[Check]:
        sources: tuple[_Source, ...] = ()
        oldest: Hour | None = None
        if self.client is not None:
            ledger = StreamLedger(self.client, stream.name)
            try:
                sources = self._ask(ZOOKEEPER, lambda: _sources(ledger))
                calendar = self._ask(ZOOKEEPER, partial(self._calendar, self.client, stream))
                oldest = calendar.oldest_open
            except TidemarkError as error:
                yield _failed(stream, "zookeeper", error)
        for source in sources or [_Source(cluster=stream.cluster, topic=stream.topic)]:
            yield from self._check_source(stream, source, oldest)
        yield from self._check_storage(stream)

    def _ask(self, service: str, question: Callable[[], T]) -> T:
        """A service that did not answer is not asked again."""
        if service in self.away:
            raise self.away[service]
        try:
            return question()
        except ServiceUnreachable as error:
            self.away[service] = error
            raise

    def _check_source(self, stream: Stream, source: _Source, oldest: Hour | None) -> Iterator[Check]:
        service = kafka_connection(source.cluster)
        try:
            kafka = self._ask(service, lambda: KafkaCluster(self.connections(service)))
            offsets = self._ask(service, lambda: _read(kafka, source.topic))
        except TidemarkError as error:
            yield _failed(stream, "topic", error)
            return
        found = f"{source} has {len(offsets)} partitions and can be read"
        yield Check(stream=stream.name, subject="topic", verdict=Verdict.OK, found=found)
        yield from _check_log_start(stream, source, offsets)
        try:
            yield self._ask(service, lambda: self._check_retention(stream, source, oldest, kafka))
        except ServiceUnreachable as error:
            yield _failed(stream, "retention", error)
        except WrongUse as error:
            yield Check(stream=stream.name, subject="retention", verdict=Verdict.UNKNOWN, found=str(error))

    def _check_retention(self, stream: Stream, source: _Source, oldest: Hour | None, kafka: KafkaCluster) -> Check:
        kept = kafka.retention(source.topic)
        open_ms = HOUR_MS + duration_ms(stream.grace)
        why = "an hour and the grace"
        if oldest and self.now_ms - oldest.start_ms > open_ms:
            open_ms, why = self.now_ms - oldest.start_ms, f"{oldest} is open"
        bound = "" if kept.bytes is None else f", at most {decimal(kept.bytes)} of a partition"
        return Check(
            stream=stream.name,
            subject="retention",
            verdict=Verdict.OK if kept.time_ms is None or kept.time_ms > open_ms else Verdict.WRONG,
            found=f"{source} keeps records {'for ever' if kept.time_ms is None else _time(kept.time_ms)}{bound}",
            wanted=f"more than {_time(open_ms)}: {why}",
        )

    def _calendar(self, client: KazooClient, stream: Stream) -> Calendar:
        (calendar,) = Board(client, self.connections).standing([stream], self.now_ms)
        return calendar

    def _check_storage(self, stream: Stream) -> Iterator[Check]:
        service = stream.root.partition(":")[0]
        try:
            file_system, root = open_file_system(stream.root, self.connections, attributes_of(stream))
            self._ask(service, lambda: probe_writing(file_system, f"{root}/{layout.WORK}"))
            yield Check(stream=stream.name, subject="root", verdict=Verdict.OK, found=f"{stream.root} takes files")
        except TidemarkError as error:
            yield _failed(stream, "root", error)
        try:
            storage = open_storage(stream.root, self.connections)
            space = self._ask(service, storage.space)
            yield from self._check_space(stream, space)
        except TidemarkError as error:
            yield _failed(stream, "space", error)

    def _check_space(self, stream: Stream, space: Space | None) -> Iterator[Check]:
        if space is None:
            text = "the NameNode does not tell how much is free"
            yield Check(stream=stream.name, subject="space", verdict=Verdict.UNKNOWN, found=text)
            return
        is_local = stream.root.startswith("file:")
        copies = space.replication if is_local else stream.files.replication or space.replication
        needed = max(stream.archive.target_size, _SIDE_BY_SIDE * self._bytes_of_a_day(stream)) * copies
        yield Check(
            stream=stream.name,
            subject="space",
            verdict=Verdict.OK if space.free >= needed else Verdict.WRONG,
            found=f"{decimal(space.free)} of {decimal(space.total)} are free",
            wanted=f"{decimal(needed)}: a day as the last one, in files and archives, {copies} copies",
        )
        yield Check(
            stream=stream.name,
            subject="replication",
            verdict=Verdict.OK if copies <= space.nodes else Verdict.WRONG,
            found=f"{copies} copies of each file, {space.nodes} nodes that keep files",
            wanted=f"{copies} nodes",
        )

    def _bytes_of_a_day(self, stream: Stream) -> int:
        """Those that the flags of the last 24 hours name; without a ledger nothing is known of them."""
        if self.client is None or ZOOKEEPER in self.away:
            return 0
        facts = Board(self.client, self.connections).facts(stream, last_days(self.now_ms, 2))
        return sum(hour.bytes for hour in facts if hour.hour.end_ms > self.now_ms - DAY_MS)


def _sources(ledger: StreamLedger) -> tuple[_Source, ...]:
    """Empty before the first plan."""
    shards = ledger.positions().value.shards
    return tuple(
        _Source(
            cluster=timeline.cluster,
            topic=timeline.topic,
            positions={
                shard.partition: position
                for shard, position in shards.items()
                if shard.timeline == order and not position.completed
            },
        )
        for order, timeline in live(ledger.timelines()).items()
    )


def _read(kafka: KafkaCluster, topic: str) -> dict[int, Offsets]:
    offsets = kafka.offsets(topic, range(kafka.describe(topic).partitions))
    kafka.check_readable(topic, offsets)
    return offsets


def _check_log_start(stream: Stream, source: _Source, offsets: Mapping[int, Offsets]) -> Iterator[Check]:
    for partition, position in source.positions.items():
        begin = offsets[partition].begin if partition in offsets else position.next
        if begin > position.next:
            yield Check(
                stream=stream.name,
                subject="retention",
                verdict=Verdict.WRONG,
                found=f"{source} begins partition {partition} at {begin}: what was before is gone, and was not read",
                wanted=f"{position.next}, the next to be read",
            )


def _failed(stream: Stream | None, subject: str, error: TidemarkError) -> Check:
    verdict = Verdict.UNREACHABLE if isinstance(error, ServiceUnreachable) else Verdict.WRONG
    return Check(stream=stream.name if stream else None, subject=subject, verdict=verdict, found=str(error))


def _time(time_ms: int) -> str:
    return str(timedelta(seconds=time_ms // 1000))
