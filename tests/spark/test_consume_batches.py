from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidemark.consume.spark import limit_batches

LINE = 3 << 20


def batches_of(frame: DataFrame) -> list[tuple[int, int]]:
    """Rows and bytes of each batch that a worker got."""

    def measure(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows], "size": [batch.nbytes]})

    return [(row.rows, row.size) for row in frame.mapInArrow(measure, "rows long, size long").collect()]


def test_a_worker_never_gets_many_large_lines_at_once(spark: SparkSession) -> None:
    limit_batches(spark)
    lines = spark.range(0, 20, 1, 1).select(F.expr(f"cast(repeat('x', {LINE}) as binary)").alias("value"))
    found = batches_of(lines)
    assert sum(rows for rows, _ in found) == 20
    assert max(size for _, size in found) < (8 << 20) + 2 * LINE


def test_a_worker_gets_many_short_lines_at_once(spark: SparkSession) -> None:
    limit_batches(spark)
    assert [rows for rows, _ in batches_of(spark.range(0, 50_000, 1, 1))] == [20_000, 20_000, 10_000]
