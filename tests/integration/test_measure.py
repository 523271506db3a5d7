"""The figures that are sent as metrics, of real streams, beside what was written into Kafka."""

import pytest
from pyspark.sql import SparkSession
from tests.pipeline import FIRST, TASK, Pipeline, at, build, records
from tests.services import Sent, walk

from tidemark import metrics
from tidemark.drive.acts import accept_hour
from tidemark.drive.measure import committed_since, lag, last_committed, published, standing
from tidemark.drive.publish import publish_stream
from tidemark.errors import TidemarkError
from tidemark.inspect.board import in_time_ms
from tidemark.inspect.measure import measure_standing
from tidemark.ledger.zookeeper import open_session
from tidemark.metrics import Figures
from tidemark.names import HOUR_MS, Hour
from tidemark.stack import Stack

SECOND, THIRD = Hour(FIRST.end_ms), Hour(FIRST.end_ms + HOUR_MS)
BEYOND_9999 = 260_000_000_000_000


@pytest.fixture
def pipeline(stack: Stack, spark: SparkSession) -> Pipeline:
    return build(stack, spark, "hdfs", "/measure", offset_reset="earliest")


def standing_at(pipeline: Pipeline, now_ms: int) -> Figures:
    with open_session(pipeline.connections) as client:
        return measure_standing(client, pipeline.stream, pipeline.connections, now_ms)


def publish(pipeline: Pipeline) -> Figures:
    flags = publish_stream(pipeline.stream, pipeline.connections, TASK).published
    return published(pipeline.stream, flags, pipeline.connections)


def test_what_shifts_brought_and_sweeps_flagged_is_counted_once(pipeline: Pipeline) -> None:
    pipeline.topic.send(
        [
            *records(FIRST, 6),
            Sent(partition=0, time_ms=1000, value=b"from 1970"),
            Sent(partition=1, time_ms=BEYOND_9999, value=b"of no year"),
            Sent(partition=1, time_ms=BEYOND_9999, value=b"of no year either"),
            Sent(partition=2, time_ms=FIRST.start_ms, value=None),
        ]
    )
    assert last_committed(pipeline.stream, pipeline.connections) == 0
    pipeline.plan(FIRST)
    assert last_committed(pipeline.stream, pipeline.connections) == 0
    assert lag(pipeline.stream, pipeline.connections) == {metrics.LAG_RECORDS: 10}
    pipeline.consume(FIRST)
    assert lag(pipeline.stream, pipeline.connections) == {metrics.LAG_RECORDS: 0}
    first = committed_since(pipeline.stream, 0, pipeline.connections)
    written = sum(size for path, size in walk(pipeline.storage) if not path.startswith("_manifests"))
    assert first == {
        metrics.RECORDS: 10,
        metrics.LINES: 6,
        metrics.BYTES: written,
        metrics.LATE_LINES: 0,
        metrics.SKEWED_LINES: 1,
        metrics.BAD_LINES: 2,
    }
    pipeline.archive()
    # Three shards wrote a file each, one archived file holds them.
    assert publish(pipeline) == {metrics.READY_HOURS: 1, metrics.REVISIONS: 0, metrics.ARCHIVE_RATIO: 3}
    assert publish(pipeline) == {metrics.READY_HOURS: 0, metrics.REVISIONS: 0}

    pipeline.topic.send([Sent(partition=0, time_ms=FIRST.start_ms + 5, value=b"late")])
    pipeline.consume(SECOND)
    second = committed_since(pipeline.stream, 1, pipeline.connections)
    assert (second[metrics.RECORDS], second[metrics.LATE_LINES], second[metrics.BAD_LINES]) == (1, 1, 0)
    both = committed_since(pipeline.stream, 0, pipeline.connections)
    assert both == {metric: first[metric] + second[metric] for metric in both}
    pipeline.archive()
    figures = publish(pipeline)
    assert (figures[metrics.READY_HOURS], figures[metrics.REVISIONS]) == (1, 1)


def test_hours_are_due_held_and_freed_as_the_board_has_them(pipeline: Pipeline) -> None:
    with pytest.raises(TidemarkError, match="never planned"):
        standing(pipeline.stream, pipeline.connections)
    pipeline.topic.send(records(FIRST, 30))
    pipeline.run(FIRST)
    in_time = in_time_ms(pipeline.stream)
    while_second_runs = standing_at(pipeline, SECOND.start_ms + 600_000)
    assert while_second_runs == {
        metrics.HELD_HOURS: 0,
        metrics.GAP_HOURS: 0,
        metrics.GROWN_RECORDS: 0,
        metrics.LEASE_LOSSES: 0,
        metrics.OLDEST_OPEN_HOUR_AGE: 0,
        metrics.LAG_SECONDS: 600,
        metrics.DUE: (SECOND.end_ms + in_time) / 1000,
    }
    # Nothing runs for ten days: every hour since is held, and the first of them is what was due.
    later = standing_at(pipeline, SECOND.end_ms + 240 * HOUR_MS)
    assert later[metrics.DUE] == while_second_runs[metrics.DUE]
    assert later[metrics.OLDEST_OPEN_HOUR_AGE] == 240 * 3600
    assert later[metrics.HELD_HOURS] == len([n for n in range(241) if n * HOUR_MS + in_time <= 240 * HOUR_MS])

    pipeline.topic.send(records(SECOND, 30))
    pipeline.topic.expire_before(1, 15)
    with at(SECOND.end_ms + 600_000):
        pipeline.run(SECOND)
    pipeline.run(THIRD)
    held = standing_at(pipeline, THIRD.end_ms + 60_000)
    assert (held[metrics.GAP_HOURS], held[metrics.HELD_HOURS]) == (2, 2)
    assert held[metrics.DUE] == while_second_runs[metrics.DUE]
    for hour in (SECOND, THIRD):
        accept_hour(pipeline.stream, hour, "known", pipeline.connections, TASK)
    pipeline.publish()
    freed = standing_at(pipeline, THIRD.end_ms + 60_000)
    assert (freed[metrics.GAP_HOURS], freed[metrics.HELD_HOURS]) == (0, 0)
    assert freed[metrics.DUE] == (THIRD.end_ms + HOUR_MS + in_time) / 1000
