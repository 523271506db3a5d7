"""The table and the file."""

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.writing import MADE, Written

CONSUMER, WARM_CONSUMER = "ConsumerPerformance", "ConsumerPerformance in a warm JVM"
AVRO, PARQUET = "Spark to Avro", "Spark to Parquet"
OURS = {
    (compression, place): f"Tidemark {compression} to {place}"
    for compression in ("fast", "small")
    for place in ("HDFS", "local files")
}
PARSED = f"{OURS['fast', 'HDFS']}, timestamp: message"

Times = Mapping[str, Sequence[float]]


def ratios_of(warm: Times, written: Mapping[str, Written]) -> dict[str, float]:
    """How many times as fast we are; `size_vs_zlib6` is the worst corpus."""
    made = written[MADE]
    found: dict[str, float] = {}
    for compression, suffix in (("fast", ""), ("small", "_small")):
        hdfs, local = (_median(warm, OURS[compression, place]) for place in ("HDFS", "local files"))
        packed = made.fast if compression == "fast" else made.small
        found |= {
            f"hdfs_vs_consumer{suffix}": _median(warm, CONSUMER) / hdfs,
            f"local_vs_consumer{suffix}": _median(warm, CONSUMER) / local,
            f"hdfs_vs_warm_consumer{suffix}": _median(warm, WARM_CONSUMER) / hdfs,
            f"local_vs_warm_consumer{suffix}": _median(warm, WARM_CONSUMER) / local,
            f"vs_spark_avro{suffix}": _median(warm, AVRO) / hdfs,
            f"vs_spark_parquet{suffix}": _median(warm, PARQUET) / hdfs,
            f"writer_vs_fastavro{suffix}": made.fastavro.seconds / packed.seconds,
            f"writer_vs_fastavro_records{suffix}": made.fastavro.from_records_seconds / packed.seconds,
        }
    return found | {
        "message_vs_kafka": _median(warm, OURS["fast", "HDFS"]) / _median(warm, PARSED),
        "size_vs_zlib6": max(found.small.bytes_vs_zlib6 for found in written.values()),
    }


def machine() -> dict[str, Any]:
    return {"cores": len(os.sched_getaffinity(0)), "system": platform.platform(), "python": platform.python_version()}


def show(console: Console, result: Mapping[str, Any]) -> None:
    console.print(_sides(result))
    console.print(_writers(result))
    console.print(_stages(result))
    console.print(_others(result))


def _sides(result: Mapping[str, Any]) -> Table:
    lines = result["lines"]
    table = _table(f"{lines:,} lines of {result['bytes_per_line']:.0f} bytes, warm", "first s", "warm s", "lines/s")
    yardsticks = [_median(result["warm_seconds"], side) for side in (CONSUMER, WARM_CONSUMER)]
    for title in ("of Consumer-Performance", "of the one in a warm JVM"):
        table.add_column(title, justify="right")
    for side, seconds in result["warm_seconds"].items():
        median = statistics.median(seconds)
        first = f"{result['first_seconds'][side]:.2f}"
        ratios = (f"{yardstick / median:.2f}" for yardstick in yardsticks)
        table.add_row(side, first, f"{median:.2f}", f"{lines / median:,.0f}", *ratios)
    return table


def _writers(result: Mapping[str, Any]) -> Table:
    table = _table(
        "The writer alone, one core, lines/s",
        *("lines", "fastavro", "fastavro, from records", "fast", "small", "fast size", "small size"),
    )
    for name, found in result["writers"].items():
        lines = found["lines"]
        speeds = (
            found["fastavro"]["seconds"],
            found["fastavro"]["from_records_seconds"],
            found["fast"]["seconds"],
            found["small"]["seconds"],
        )
        sizes = (found[compression]["bytes_vs_zlib6"] for compression in ("fast", "small"))
        table.add_row(
            name, f"{lines:,}", *(f"{lines / seconds:,.0f}" for seconds in speeds), *(f"{size:.3f}" for size in sizes)
        )
    return table


def _stages(result: Mapping[str, Any]) -> Table:
    table = _table("Where the time goes: each stage with all before it", "s")
    for name, seconds in result["stage_seconds"].items():
        table.add_row(name, f"{seconds:.2f}")
    return table


def _others(result: Mapping[str, Any]) -> Table:
    table = _table("And", "found")
    for name, value in result["ratios"].items():
        table.add_row(f"ratios.{name}", f"{value:.3f}")
    for name in (
        "cold_seconds",
        "cold_seconds_small",
        "worker_peak_mb_4m",
        "worker_peak_mb_16m",
        "plan_1000_seconds",
        "commit_5000_seconds",
        "switch_seconds",
    ):
        table.add_row(name, f"{result[name]:.2f}")
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _median(times: Times, side: str) -> float:
    return statistics.median(times[side])
