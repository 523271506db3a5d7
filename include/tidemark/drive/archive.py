"""Archive the hours of a stream."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemark.archive.hours import HourArchiver
from tidemark.config import Stream
from tidemark.drive.services import now_ms, services
from tidemark.environment import Connections
from tidemark.logs import logger
from tidemark.names import Task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def archive_stream(
    stream: Stream, connections: Connections, task: Task, open_spark: "Callable[[], SparkSession]"
) -> None:
    """Archive every hour below the lowest watermark that has something to archive and that nobody else works on.

    Spark is asked for only when there is such an hour.
    """
    with services(stream, connections, task) as around:
        archiver = HourArchiver(
            ledger=around.ledger, storage=around.storage(), client=around.client, worker=around.worker
        )
        waiting = archiver.waiting()
        if not waiting:
            return
        spark = open_spark()
        claims = [claim for hour in waiting if (claim := archiver.claim(hour, now_ms()))]
        orders = [order for claim in claims for order in claim.orders]
        from tidemark.archive.spark import join_targets, verify_targets

        joined = join_targets(spark, orders)
        for claim in claims:
            archiver.finish(claim, [target for target in joined if target.hour == claim.hour])
        verify_targets(spark, orders)
        for claim in claims:
            archiver.release(claim)
            logger(__name__, stream=stream.name, hour=claim.hour).info(
                "archived",
                extra={"sources": sum(len(order.target.pieces) for order in claim.orders)},
            )
