"""What arrives at each kind of backend, sent by a process that Airflow has set up as it does a task's."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA
from tests.statsd import Received, statsd_server
from tests.waiting import wait_until

from tidemark.metrics import LAG_RECORDS, LINES, Kind

PROGRAM = """
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils
stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)

from tidemark.config import Stream
from tidemark.metrics import LAG_RECORDS, LINES, STAGE_SECONDS
from tidemark_airflow.metrics import commits_counted, send
stream = Stream(name="clicks-1", cluster="main", topic="clicks", root="file:///tmp/clicks", owner="test")

def measure():
    print("measured")
    return {LAG_RECORDS: 12, LINES: 7}

def fail():
    raise ValueError("no figures")

send(stream, measure)
send(stream, fail)
send(stream, lambda: {STAGE_SECONDS: 1.5}, stage="plan")
with commits_counted(stream):
    print("worked without a ZooKeeper")
"""


def run(home: Path, **settings: str) -> str:
    environment = {**os.environ, "AIRFLOW_HOME": str(home), **settings}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "worked without a ZooKeeper" in done.stdout
    return done.stdout


def test_plain_statsd_has_the_labels_in_the_name_and_a_figure_that_cannot_be_had_fails_nothing(
    airflow_home: Path,
) -> None:
    with statsd_server() as statsd:
        run(airflow_home, **statsd.settings())
        wait_until(lambda: len(statsd.received("tidemark")) == 3, "three metrics arrive")
        assert statsd.received("tidemark") == [
            Received("airflow.tidemark.lag_records.clicks-1", 12, Kind.GAUGE),
            Received("airflow.tidemark.lines.clicks-1", 7, Kind.COUNTER),
            Received("airflow.tidemark.stage_seconds.clicks-1.plan", 1.5, Kind.GAUGE),
        ]


def test_statsd_with_tags_has_the_labels_there(airflow_home: Path) -> None:
    with statsd_server() as statsd:
        run(airflow_home, **statsd.settings(), AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED="True")
        wait_until(lambda: len(statsd.received("tidemark")) == 3, "three metrics arrive")
        assert [found.name for found in statsd.received("tidemark")] == [
            "airflow.tidemark.lag_records,stream=clicks-1",
            "airflow.tidemark.lines,stream=clicks-1",
            "airflow.tidemark.stage_seconds,stream=clicks-1,stage=plan",
        ]


@contextmanager
def otlp_server(bodies: list[bytes]) -> Iterator[str]:
    """An OpenTelemetry collector's address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def metrics_in(bodies: list[bytes]) -> Mapping[str, Any]:
    requests: list[Any] = [ExportMetricsServiceRequest.FromString(body) for body in bodies]
    return {
        metric.name: metric
        for request in requests
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def attributes_of(point: Any) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value for attribute in point.attributes}


def test_opentelemetry_has_attributes_and_counters_as_differences(airflow_home: Path) -> None:
    bodies: list[bytes] = []
    with otlp_server(bodies) as address:
        run(
            airflow_home,
            AIRFLOW__METRICS__OTEL_ON="True",
            OTEL_EXPORTER_OTLP_ENDPOINT=address,
            OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE="delta",
        )
    found = metrics_in(bodies)
    (lag,) = found[f"airflow.tidemark.{LAG_RECORDS.name}"].gauge.data_points
    assert (lag.as_int or lag.as_double, attributes_of(lag)) == (12, {"stream": "clicks-1"})
    lines = found[f"airflow.tidemark.{LINES.name}"].sum
    assert [(point.as_int, attributes_of(point)) for point in lines.data_points] == [(7, {"stream": "clicks-1"})]
    assert lines.aggregation_temporality == AGGREGATION_TEMPORALITY_DELTA
    (took,) = found["airflow.tidemark.stage_seconds"].gauge.data_points
    assert (took.as_double, attributes_of(took)) == (1.5, {"stream": "clicks-1", "stage": "plan"})


def test_nothing_is_measured_while_metrics_are_off(airflow_home: Path) -> None:
    assert "measured" not in run(airflow_home)
