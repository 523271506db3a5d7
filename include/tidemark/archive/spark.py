"""Spread the targets of many hours over Spark tasks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from pyspark import TaskContext
from pyspark.sql import SparkSession

from tidemark.archive.join import Joined, JoinOrder, join_target, verify_target

Result = TypeVar("Result")


def join_targets(spark: SparkSession, orders: Sequence[JoinOrder]) -> list[Joined]:
    return _spread(spark, orders, _join)


def verify_targets(spark: SparkSession, orders: Sequence[JoinOrder]) -> None:
    _spread(spark, orders, _verify)


def _spread(
    spark: SparkSession, orders: Sequence[JoinOrder], work: Callable[[Iterable[JoinOrder]], Iterable[Result]]
) -> list[Result]:
    return spark.sparkContext.parallelize(orders, max(1, len(orders))).mapPartitions(work).collect()


def _join(orders: Iterable[JoinOrder]) -> Iterator[Joined]:
    context = TaskContext.get()
    assert context is not None, "runs inside a Spark task only"
    for order in orders:
        yield join_target(order, context.taskAttemptId())


def _verify(orders: Iterable[JoinOrder]) -> Iterator[None]:
    for order in orders:
        verify_target(order)
        yield None
