"""The figures of a stream: from what `offsets`, `check`, `timeline` and the board show, from manifests and indexes."""

from collections.abc import Iterable, Sequence

from kazoo.client import KazooClient

from tidemark import metrics
from tidemark.config import Stream
from tidemark.environment import Connections
from tidemark.index import read_index
from tidemark.inspect.board import Board, in_time_ms
from tidemark.inspect.offsets import view_offsets
from tidemark.inspect.timelines import view_timelines
from tidemark.inspect.workers import view_lease
from tidemark.ledger.stream import StreamLedger
from tidemark.manifest import Manifest
from tidemark.metrics import Figures
from tidemark.names import Hour, parse_subject
from tidemark.publish.sweep import Published
from tidemark.storage import Storage


def measure_lag(client: KazooClient, stream: Stream, connections: Connections) -> Figures:
    """The only figure that Kafka is asked for. Raise NeverPlanned before the first plan."""
    return {metrics.LAG_RECORDS: view_offsets(client, stream.name, connections).lag}


def measure_standing(client: KazooClient, stream: Stream, connections: Connections, now_ms: int) -> Figures:
    """Of the ledger alone. Raise TidemarkError before the first plan.

    Without an open shard there is no lag in time; without an hour that is not ready, none that is due.
    """
    (calendar,) = Board(client, connections).standing([stream], now_ms)
    lease, oldest = view_lease(client, stream.name), calendar.oldest_open
    figures: dict[metrics.Metric, float] = {
        metrics.HELD_HOURS: len(calendar.held()),
        metrics.GAP_HOURS: calendar.held_by_gaps(),
        metrics.GROWN_RECORDS: sum(
            shard.grown for timeline in view_timelines(client, stream.name) for shard in timeline.shards
        ),
        metrics.LEASE_LOSSES: lease.losses if lease else 0,
        metrics.OLDEST_OPEN_HOUR_AGE: max(0, now_ms - oldest.end_ms) / 1000 if oldest else 0,
    }
    if calendar.watermark_ms is not None:
        figures[metrics.LAG_SECONDS] = max(0, now_ms - calendar.watermark_ms) / 1000
    if oldest:
        figures[metrics.DUE] = (oldest.end_ms + in_time_ms(stream)) / 1000
    return figures


def count_committed(manifests: Iterable[Manifest]) -> Figures:
    counts = [manifest.counts() for manifest in manifests]
    return {
        metrics.RECORDS: sum(count.records for count in counts),
        metrics.LINES: sum(count.lines for count in counts),
        metrics.BYTES: sum(count.bytes for count in counts),
        metrics.LATE_LINES: sum(count.late for count in counts),
        metrics.SKEWED_LINES: sum(count.skewed for count in counts),
        metrics.BAD_LINES: sum(count.bad for count in counts),
    }


def count_published(ledger: StreamLedger, storage: Storage, published: Sequence[Published]) -> Figures:
    """Of a sweep; days are counted by their hours."""
    hours = {hour: flag for flag in published if isinstance(hour := parse_subject(flag.subject), Hour)}
    figures: dict[metrics.Metric, float] = {
        metrics.READY_HOURS: sum(flag.revision == 1 for flag in hours.values()),
        metrics.REVISIONS: sum(flag.revision > 1 for flag in hours.values()),
    }
    pieces = [piece for hour in hours for piece in read_index(storage, hour, ledger.hour(hour).value.archives)]
    if pieces:
        sources, targets = {piece.srcFile for piece in pieces}, {piece.destFile for piece in pieces}
        figures[metrics.ARCHIVE_RATIO] = len(sources) / len(targets)
    return figures
