"""Send the metrics of `tidemark.metrics` through Airflow's own: StatsD, DogStatsD or OpenTelemetry.

A figure never fails the stage that it is about, and nothing is measured while Airflow's metrics are off. See
docs/adr/0030.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats

from tidemark.config import Stream
from tidemark.metrics import PREFIX, STAGE_SECONDS, Figures, Kind, Metric, Stage
from tidemark_airflow.connections import connection_from_airflow

_log = logging.getLogger(__name__)


@contextmanager
def measured(stream: Stream, stage: Stage) -> Iterator[None]:
    """Send how long the stage took, and how the stream stands then; nothing of a stage that failed."""
    from tidemark.drive.measure import lag, standing

    began = time.monotonic()
    yield
    seconds = time.monotonic() - began
    send(stream, lambda: {STAGE_SECONDS: seconds}, stage=stage)
    send(stream, lambda: standing(stream, connection_from_airflow))
    send(stream, lambda: lag(stream, connection_from_airflow))


@contextmanager
def commits_counted(stream: Stream) -> Iterator[None]:
    """Send what was committed meanwhile, also when the rest failed. One at a time for each stream."""
    from tidemark.drive.measure import committed_since, last_committed

    before = None
    with _harmless(stream):
        before = last_committed(stream, connection_from_airflow) if _is_on() else None
    try:
        yield
    finally:
        if before is not None:
            send(stream, lambda: committed_since(stream, before, connection_from_airflow))


def send(stream: Stream, measure: Callable[[], Figures], **labels: str) -> None:
    """`labels`: those of the metrics beside the stream."""
    if _is_on():
        with _harmless(stream):
            for metric, value in measure().items():
                _send(metric, value, {"stream": stream.name, **labels})


@contextmanager
def _harmless(stream: Stream) -> Iterator[None]:
    """The work is done, and must not be done again for want of a figure, whatever the error is."""
    try:
        yield
    except Exception as error:
        _log.warning("No metrics of %s this time: %s", stream.name, error)


def _send(metric: Metric, value: float, labels: Mapping[str, str]) -> None:
    """Plain StatsD has no tags, and Airflow drops them there: then the labels stand in the name."""
    tags = dict(labels) if _has_tags() else {}
    name = ".".join([PREFIX, metric.name, *(labels.values() if not tags else ())])
    if metric.kind is Kind.COUNTER:
        stats.incr(name, int(value), tags=tags)
    else:
        stats.gauge(name, value, tags=tags)


def _is_on() -> bool:
    return any(_says(option) for option in ("statsd_datadog_enabled", "statsd_on", "otel_on"))


def _has_tags() -> bool:
    """In the order in which Airflow chooses."""
    return _says("statsd_datadog_enabled") or _says("statsd_influxdb_enabled") or not _says("statsd_on")


def _says(option: str) -> bool:
    return bool(conf.getboolean("metrics", option, fallback=False))
