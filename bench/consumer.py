"""Kafka's own yardstick: ConsumerPerformance, which reads a topic and throws it away (docs/adr/0025)."""

import re
import subprocess
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Self

from py4j.java_gateway import JavaGateway

from tidemark.errors import TidemarkError
from tidemark.stack.jars import class_path, pyspark_home

_TOOL = "org.apache.kafka.tools.ConsumerPerformance"
# What kafka-consumer-perf-test.sh starts it with.
_TOOL_OPTIONS = ("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
                 "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent")  # fmt: skip
_QUIET = "-Dlog4j2.level=ERROR"
_PATIENCE_S = 600
_RESULT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_RECORDS, _RECORDS_A_SECOND = 4, 5


def run_tool(java_home: str, bootstrap: str, topic: str, records: int) -> float:
    """Read so many records as a user would, in a process of its own; the seconds that it tells, its start left out."""
    done = subprocess.run(
        [_java(java_home), *_TOOL_OPTIONS, _QUIET, "-cp", _jars(), _TOOL, *_arguments(bootstrap, topic, records)],
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_S,
    )
    told = [line for line in done.stdout.splitlines() if _RESULT.match(line)]
    if not told:
        raise TidemarkError(f"Cannot measure {topic}: ConsumerPerformance told no result: {done.stderr[-1000:]}")
    return _seconds(told[-1], topic, records)


class WarmConsumer:
    """The tool's own class, called again and again in one JVM, so that it is as warm as Spark.

    Its seconds are those that it tells itself, from the first question to the broker on.
    """

    def __init__(self, java_home: str, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._said: Queue[str] = Queue()
        self._gateway: Any = JavaGateway.launch_gateway(
            classpath=_jars(),
            javaopts=["-Xmx1g", "-XX:+UseParallelGC", _QUIET],
            java_path=_java(java_home),
            redirect_stdout=self._said,
            die_on_exit=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._gateway.shutdown()

    def read(self, topic: str, records: int) -> float:
        """Read so many records, in seconds."""
        arguments = _arguments(self._bootstrap, topic, records)
        given = self._gateway.new_array(self._gateway.jvm.java.lang.String, len(arguments))
        for place, argument in enumerate(arguments):
            given[place] = argument
        self._gateway.jvm.org.apache.kafka.tools.ConsumerPerformance.main(given)
        return _seconds(self._result(), topic, records)

    def _result(self) -> str:
        while True:
            try:
                line = self._said.get(timeout=_PATIENCE_S)
            except Empty:
                raise TidemarkError("Cannot measure: ConsumerPerformance told no result") from None
            if _RESULT.match(line):
                return line


def _java(java_home: str) -> str:
    return str(Path(java_home) / "bin" / "java")


def _jars() -> str:
    (scala,) = (pyspark_home() / "jars").glob("scala-library-*.jar")
    return f"{class_path('kafka')}:{scala}"


def _arguments(bootstrap: str, topic: str, records: int) -> tuple[str, ...]:
    return (
        "--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records),
        "--timeout", "60000", "--hide-header",
    )  # fmt: skip


def _seconds(result: str, topic: str, records: int) -> float:
    fields = [field.strip() for field in result.split(",")]
    if int(fields[_RECORDS]) < records:
        raise TidemarkError(f"Cannot measure {topic}: read {fields[_RECORDS]} records, wanted {records}")
    return int(fields[_RECORDS]) / float(fields[_RECORDS_A_SECOND])
