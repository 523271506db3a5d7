"""The graph of a stream's timelines with the progress of each shard, as the ledger has it: no broker is asked."""

from collections.abc import Iterator
from dataclasses import dataclass

from kazoo.client import KazooClient

from tidemark.inspect.offsets import NeverPlanned
from tidemark.ledger.records import Positions, Timeline
from tidemark.ledger.stream import StreamLedger
from tidemark.lineage import Cursor, cursor_of, growths, parents_of
from tidemark.names import Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardView:
    """`end` is None while its timeline is open; `grown` counts the records that it got after it was closed."""

    shard: Shard
    parents: tuple[Shard, ...]
    next: int
    end: int | None
    cursor: Cursor
    watermark_ms: int
    completed: bool
    grown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineView:
    """`shards` is empty for one that was retired."""

    order: int
    timeline: Timeline
    shards: tuple[ShardView, ...]

    @property
    def completed(self) -> int:
        return sum(shard.completed for shard in self.shards)

    @property
    def state(self) -> str:
        if self.timeline.retired_ms is not None:
            return "retired"
        if self.timeline.ends is None:
            return "open"
        return "completed" if self.completed == len(self.shards) else "closed"


def view_timelines(client: KazooClient, stream: str) -> list[TimelineView]:
    """Raise NeverPlanned for a stream that has none yet."""
    ledger = StreamLedger(client, stream)
    timelines, positions = ledger.timelines(), ledger.positions().value
    if not timelines:
        raise NeverPlanned(f"Cannot show the timelines of {stream}: it was never planned, and so has none stored yet")
    return [
        TimelineView(order=order, timeline=timeline, shards=tuple(_shards_of(order, timelines, positions)))
        for order, timeline in sorted(timelines.items())
    ]


def _shards_of(order: int, timelines: dict[int, Timeline], positions: Positions) -> Iterator[ShardView]:
    grown = {growth.shard: growth.end - growth.closed_at for growth in growths(timelines)}
    ends = timelines[order].ends
    for shard, position in sorted(positions.shards.items()):
        if shard.timeline == order:
            yield ShardView(
                shard=shard,
                parents=parents_of(shard, timelines),
                next=position.next,
                end=ends[shard.partition] if ends is not None else None,
                cursor=cursor_of(shard, position.next - 1, timelines),
                watermark_ms=position.watermark_ms,
                completed=position.completed,
                grown=grown.get(shard, 0),
            )
