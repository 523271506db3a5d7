"""Measure everything in one run, side by side, on services of its own: `make bench [LINES=200000]`."""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

from bench import report
from bench.archive import measure_archive
from bench.board import time_board
from bench.consumer import WarmConsumer, run_tool
from bench.memory import WorkerPeak
from bench.ours import Order, consume, consume_cold
from bench.peers import read_topic, write_avro, write_parquet
from bench.ready import time_ready
from bench.scale import time_commit, time_plans, time_switch
from bench.session import open_spark, production_environment
from bench.stages import time_stages
from bench.topics import PARTITIONS, fill_topic
from bench.writing import as_json, measure_writers
from tidemark.drive.services import now_ms
from tidemark.environment import Connection, parse_connection, variable_of
from tidemark.kafka import KafkaCluster
from tidemark.kafka_options import spark_options
from tidemark.stack import DATA_SERVICES, Stack

TOPIC, LARGE_TOPIC = "bench", "bench-large"
LARGER = 4
_WRITER_LINES = 300_000
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    stack: Stack
    environment: dict[str, str]
    lines: int
    rounds: int
    console: Console
    out: Path
    result: dict[str, Any] = field(default_factory=dict)

    def connections(self, conn_id: str) -> Connection:
        return parse_connection(conn_id, self.environment[variable_of(conn_id)])

    @property
    def bootstrap(self) -> str:
        return self.environment["TIDEMARK_KAFKA"]

    def order(
        self,
        place: str,
        compression: str,
        topic: str = TOPIC,
        lines: int | None = None,
        timestamp: str = "kafka",
    ) -> Order:
        name = f"bench-{next(_numbers)}"
        root = f"hdfs:///bench/{name}" if place == "HDFS" else (self.stack.home / "bench" / name).as_uri()
        return Order(
            name=name,
            topic=topic,
            lines=lines or self.lines,
            root=root,
            compression=compression,
            timestamp=timestamp,
        )

    def save(self) -> None:
        """After each part: what was measured stays when the run is ended."""
        self.out.write_text(json.dumps(self.result, indent=2) + "\n")

    def tell(self, step: str) -> None:
        self.console.print(f"  {step}", highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5, help="how often each side is measured, warm")
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    asked = parser.parse_args()
    # Asked to terminate, end the services as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Into a file the tables keep their columns.
    console = Console(width=None if sys.stdout.isatty() else 140)
    with TemporaryDirectory(prefix="tidemark-bench-") as folder:
        stack = Stack(Path(folder))
        try:
            stack.up(DATA_SERVICES, on_step=lambda step: console.print(f"  {step}", highlight=False))
            bench = Bench(
                stack=stack,
                environment=production_environment(stack),
                lines=asked.lines,
                rounds=asked.rounds,
                console=console,
                out=asked.out,
            )
            run(bench)
        finally:
            stack.down()
    report.show(console, bench.result)
    console.print(f"Written to {asked.out}")


def run(bench: Bench) -> None:
    begin = time.monotonic()
    bench.result.update(
        date=datetime.now(UTC).isoformat(timespec="seconds"), machine=report.machine(), lines=bench.lines
    )
    bench.tell(f"topic: {bench.lines:,} lines")
    bench.result["bytes_per_line"] = fill_topic(bench.connections("kafka_main"), TOPIC, bench.lines) / bench.lines
    bench.tell("the writer alone")
    written = measure_writers(min(bench.lines, _WRITER_LINES), bench.stack.home / "logs")
    bench.result["writers"] = as_json(written)
    bench.save()
    with open_spark(bench.environment) as spark:
        measure_sides(bench, spark)
        bench.result["ratios"] = report.ratios_of(bench.result["warm_seconds"], written)
        bench.save()
        measure_stages(bench, spark)
        for measure in (measure_cold, measure_scale, measure_ready, measure_board):
            bench.save()
            measure(bench)
        bench.save()
        measure_join(bench, spark)
        bench.save()
        measure_large(bench, spark)
    bench.result["whole_run_seconds"] = time.monotonic() - begin
    bench.save()


def measure_sides(bench: Bench, spark: SparkSession) -> None:
    """All sides in turn, again and again, so that what disturbs the machine disturbs all of them."""
    with WarmConsumer(bench.environment["JAVA_HOME"], bench.bootstrap) as consumer, WorkerPeak() as peak:
        sides = _sides(bench, spark, consumer)
        first = {name: _time(bench, name, side) for name, side in sides.items()}
        warm: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(bench.rounds):
            for name, side in sides.items():
                warm[name].append(_time(bench, name, side))
    bench.result.update(first_seconds=first, warm_seconds=warm, worker_peak_mb_4m=peak.megabytes)


def _sides(bench: Bench, spark: SparkSession, consumer: WarmConsumer) -> dict[str, Callable[[], float]]:
    def timed(write: Callable[[str], None]) -> Callable[[], float]:
        return lambda: _time_peer(bench, write)

    def ours(compression: str, place: str, timestamp: str = "kafka") -> Callable[[], float]:
        return lambda: consume(bench.order(place, compression, timestamp=timestamp), bench.connections, spark)

    return {
        report.CONSUMER: lambda: run_tool(bench.environment["JAVA_HOME"], bench.bootstrap, TOPIC, bench.lines),
        report.WARM_CONSUMER: lambda: consumer.read(TOPIC, bench.lines),
        report.AVRO: timed(lambda folder: write_avro(read_topic(spark, bench.bootstrap, TOPIC), folder)),
        report.PARQUET: timed(lambda folder: write_parquet(read_topic(spark, bench.bootstrap, TOPIC), folder)),
        **{name: ours(compression, place) for (compression, place), name in report.OURS.items()},
        report.PARSED: ours("fast", "HDFS", "message"),
    }


def _time(bench: Bench, name: str, side: Callable[[], float]) -> float:
    seconds = side()
    bench.tell(f"{name}: {seconds:.2f} s")
    return seconds


def _time_peer(bench: Bench, write: Callable[[str], None]) -> float:
    folder = f"{bench.environment['TIDEMARK_HDFS']}/bench/peer-{next(_numbers)}"
    begin = time.monotonic()
    write(folder)
    return time.monotonic() - begin


def measure_large(bench: Bench, spark: SparkSession) -> None:
    """Whether a worker needs more memory for four times the lines."""
    lines = LARGER * bench.lines
    bench.tell(f"topic: {lines:,} lines")
    fill_topic(bench.connections("kafka_main"), LARGE_TOPIC, lines)
    with WorkerPeak() as peak:
        seconds = consume(bench.order("HDFS", "small", LARGE_TOPIC, lines), bench.connections, spark)
    bench.tell(f"{lines:,} lines, small to HDFS: {seconds:.2f} s, {peak.megabytes:.0f} MB a worker")
    bench.result.update(large_seconds=seconds, worker_peak_mb_16m=peak.megabytes)


def measure_join(bench: Bench, spark: SparkSession) -> None:
    bench.tell("joining 2,000 small files")
    found = measure_archive(f"bench-{next(_numbers)}", bench.connections, spark)
    bench.result["archive"] = asdict(found)
    bench.result["ratios"]["join_vs_copy"] = found.join_vs_copy
    bench.tell(f"{found.join_seconds:.2f} s, {found.join_vs_copy:.2f} of copying, {found.worker_mb:.0f} MB a worker")
    bench.tell(f"locating one line: {found.locate_seconds:.2f} s, {found.locate_bytes:,} bytes read")


def measure_stages(bench: Bench, spark: SparkSession) -> None:
    bench.tell("where the time goes")
    connection = bench.connections("kafka_main")
    ends = KafkaCluster(connection).offsets(TOPIC, range(PARTITIONS))
    bench.result["stage_seconds"] = time_stages(spark, TOPIC, ends, spark_options(connection))


def measure_cold(bench: Bench) -> None:
    for compression, key in (("fast", "cold_seconds"), ("small", "cold_seconds_small")):
        order = bench.order("HDFS", compression)
        bench.result[key] = consume_cold(order, bench.connections, bench.environment, bench.stack.home / "bench")
        bench.tell(f"cold spark-submit, {compression}: {bench.result[key]:.2f} s")


def measure_scale(bench: Bench) -> None:
    plans = time_plans(bench.connections, 1000)
    bench.tell(f"planning 1,000 partitions: {plans.first:.2f} s, and with digests {plans.next:.2f} s")
    commit = time_commit(bench.connections, 5000)
    bench.tell(f"committing 5,000 shards: {commit:.2f} s")
    switch = time_switch(bench.connections, 200)
    bench.tell(f"switching one of 200 streams, beyond the stable time: {switch:.2f} s")
    bench.result.update(
        plan_seconds=asdict(plans),
        plan_1000_seconds=max(plans.first, plans.next),
        commit_5000_seconds=commit,
        switch_seconds=switch,
    )


def measure_ready(bench: Bench) -> None:
    bench.result["ready_seconds"] = time_ready(bench.connections, bench.stack.home)
    for name, seconds in bench.result["ready_seconds"].items():
        bench.tell(f"{name}: {seconds:.3f} s")


def measure_board(bench: Bench) -> None:
    times = asdict(time_board(bench.connections, now_ms()))
    for name, seconds in times.items():
        bench.tell(f"readiness board, {name.replace('_', ' ')}: {seconds * 1000:.0f} ms")
    bench.result["board_seconds"] = times


if __name__ == "__main__":
    main()
