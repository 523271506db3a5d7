"""Switch a stream to another topic or cluster, and let go of timelines that are over: operators' acts.

The act is frozen as the stream's open shift in one transaction, which closes the old timeline, opens the new one with
its shards and raises the version: an initiator who dies before it leaves nothing, one who dies after it leaves an act
that the next run puts on record.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidemark.config import Stream
from tidemark.errors import TidemarkError, WrongUse
from tidemark.failpoints import reach
from tidemark.kafka import KafkaCluster, Topic
from tidemark.ledger import paths
from tidemark.ledger.lease import StreamLease
from tidemark.ledger.records import (
    Parents,
    Positions,
    Proof,
    Retirement,
    ShardPosition,
    Shift,
    ShiftRange,
    Switch,
    Timeline,
    TimelinesVersion,
    dump,
)
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import Transaction, Versioned
from tidemark.lineage import kind_of_parents
from tidemark.names import Shard
from tidemark.plan.act import ActBasis, act_shift, open_act

MOST_BYTES = 600_000
"""Of the positions: a transaction holds them beside the ranges of a shift, and stays below 1 MiB."""
_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The two timelines that a switch changes, and the positions with the new shards."""

    timelines: Mapping[int, Timeline]
    positions: Positions


def close_and_open(
    *,
    order: int,
    closing: Timeline,
    ends: Sequence[int],
    opening: Timeline,
    begins: Sequence[int],
    positions: Positions,
) -> Opened:
    """New shards begin at `begins`, and hold no hour that was proven before: nobody had asked for them."""
    lowest_ms = positions.lowest_watermark_ms
    assert lowest_ms is not None, "the last timeline of a stream is open"
    young = {
        Shard(order + 1, partition): ShardPosition(start=begin, next=begin, watermark_ms=lowest_ms, digest=None)
        for partition, begin in enumerate(begins)
    }
    opened = replace(opening, partitions=len(begins), parents=kind_of_parents(len(ends), len(begins)))
    return Opened(
        timelines={order: closing.ending(ends), order + 1: opened},
        positions=positions.with_shards({**positions.shards, **young}),
    )
