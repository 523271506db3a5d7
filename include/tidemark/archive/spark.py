"""Spread the targets of an hour over Spark tasks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pyspark import TaskContext
from pyspark.sql import SparkSession

from tidemark.archive.join import (
    Joined,
    JoinOrder,
    Refused,
    RewriteOrder,
    VerifyOrder,
    fault_of,
    join_target,
    rewrite_source,
)
from tidemark.archive.plan import Source

Order = TypeVar("Order")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class OverSpark:
    spark: SparkSession

    def join(self, orders: Sequence[JoinOrder]) -> list[Joined | Refused]:
        return self._spread(orders, lambda order: join_target(order, _attempt()))

    def rewrite(self, orders: Sequence[RewriteOrder]) -> list[Source | Refused]:
        return self._spread(orders, lambda order: rewrite_source(order, _attempt()))

    def verify(self, orders: Sequence[VerifyOrder]) -> list[str | None]:
        return self._spread(orders, fault_of)

    def _spread(self, orders: Sequence[Order], work: Callable[[Order], Result]) -> list[Result]:
        def each(mine: Iterable[Order]) -> Iterator[Result]:
            return map(work, mine)

        if not orders:
            return []
        return self.spark.sparkContext.parallelize(orders, len(orders)).mapPartitions(each).collect()


def _attempt() -> int:
    context = TaskContext.get()
    assert context is not None, "runs inside a Spark task only"
    return context.taskAttemptId()
