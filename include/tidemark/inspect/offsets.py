"""How far a stream is: what is consumed, what Kafka has, and how much lies between."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kazoo.client import KazooClient

from tidemark.environment import Connections, kafka_connection
from tidemark.errors import TidemarkError
from tidemark.inspect.workers import LeaseView, view_lease
from tidemark.kafka import KafkaCluster, Offsets
from tidemark.ledger.records import ShardPosition, Timeline
from tidemark.ledger.stream import StreamLedger
from tidemark.lineage import Cursor, cursor_of, live
from tidemark.names import Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOffsets:
    """Everything below `next` is consumed. None, with cursor and watermark: a partition that no plan has seen yet."""

    shard: Shard
    topic: str
    next: int | None
    end: int
    stable: int
    """Below `end` while a transaction is open."""
    lag: int
    cursor: Cursor | None
    watermark_ms: int | None
    completed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffsets:
    stream: str
    number: int
    """Of the last shift that was planned."""
    open: str | None
    timelines_version: int
    lease: LeaseView | None
    shards: tuple[ShardOffsets, ...]

    @property
    def lag(self) -> int:
        return sum(shard.lag for shard in self.shards)


class NeverPlanned(TidemarkError):
    """The stream has no positions yet."""


def view_offsets(client: KazooClient, stream: str, connections: Connections) -> StreamOffsets:
    """Ends are asked from Kafka now, those of closed timelines excepted. Raise NeverPlanned before the first plan."""
    ledger = StreamLedger(client, stream)
    positions = ledger.positions().value.shards
    if not positions:
        raise NeverPlanned(f"Cannot show the offsets of {stream}: it was never planned, and so has no positions yet")
    head, timelines = ledger.head().value, ledger.timelines()
    rows = [row for order in live(timelines) for row in _rows_of(order, timelines, positions, connections)]
    return StreamOffsets(
        stream=stream,
        number=head.number,
        open=head.open,
        timelines_version=ledger.timelines_version().value.version,
        lease=view_lease(client, stream),
        shards=tuple(rows),
    )


def _rows_of(
    order: int, timelines: Mapping[int, Timeline], positions: dict[Shard, ShardPosition], connections: Connections
) -> Iterator[ShardOffsets]:
    timeline = timelines[order]
    for partition, offsets in enumerate(_offsets_of(timeline, connections)):
        shard = Shard(order, partition)
        position = positions.get(shard)
        consumed = position.next if position else offsets.begin
        yield ShardOffsets(
            shard=shard,
            topic=timeline.topic,
            next=position.next if position else None,
            end=offsets.end,
            stable=offsets.stable,
            lag=max(0, offsets.end - consumed),
            cursor=cursor_of(shard, position.next - 1, timelines) if position else None,
            watermark_ms=position.watermark_ms if position else None,
            completed=position.completed if position else False,
        )


def _offsets_of(timeline: Timeline, connections: Connections) -> list[Offsets]:
    """By partition. A closed timeline's ends are stored: its cluster may be gone."""
    if timeline.ends is not None:
        return [Offsets(begin=0, stable=end, end=end) for end in timeline.ends]
    cluster = KafkaCluster(connections(kafka_connection(timeline.cluster)))
    found = cluster.offsets(timeline.topic, range(cluster.describe(timeline.topic).partitions))
    return [found[partition] for partition in sorted(found)]
