"""Kafka's own yardstick: ConsumerPerformance, which reads a topic and throws it away."""

import re
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Self

from py4j.java_gateway import JavaGateway

from tidemark.errors import TidemarkError
from tidemark.stack.jars import class_path, pyspark_home

_PATIENCE_S = 600
_RESULT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_RECORDS, _RECORDS_A_SECOND = 4, 5


class ConsumerPerformance:
    """The tool's own class, called again and again in one JVM, so that it is as warm as Spark.

    Its seconds are those that it tells itself, from the first question to the broker on.
    """

    def __init__(self, java_home: str, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._said: Queue[str] = Queue()
        (scala,) = (pyspark_home() / "jars").glob("scala-library-*.jar")
        self._gateway: Any = JavaGateway.launch_gateway(
            classpath=f"{class_path('kafka')}:{scala}",
            javaopts=["-Xmx1g", "-XX:+UseParallelGC", "-Dlog4j2.level=ERROR"],
            java_path=str(Path(java_home) / "bin" / "java"),
            redirect_stdout=self._said,
            die_on_exit=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._gateway.shutdown()

    def read(self, topic: str, records: int) -> float:
        """Read so many records, in seconds."""
        arguments = (
            "--bootstrap-server", self._bootstrap, "--topic", topic, "--num-records", str(records),
            "--timeout", "60000", "--hide-header",
        )  # fmt: skip
        given = self._gateway.new_array(self._gateway.jvm.java.lang.String, len(arguments))
        for place, argument in enumerate(arguments):
            given[place] = argument
        self._gateway.jvm.org.apache.kafka.tools.ConsumerPerformance.main(given)
        fields = self._result()
        if int(fields[_RECORDS]) < records:
            raise TidemarkError(f"Cannot measure {topic}: read {fields[_RECORDS]} records, wanted {records}")
        return int(fields[_RECORDS]) / float(fields[_RECORDS_A_SECOND])

    def _result(self) -> list[str]:
        while True:
            try:
                line = self._said.get(timeout=_PATIENCE_S)
            except Empty:
                raise TidemarkError("Cannot measure: ConsumerPerformance told no result") from None
            if _RESULT.match(line):
                return [field.strip() for field in line.split(",")]
