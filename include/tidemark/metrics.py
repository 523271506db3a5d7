"""Every metric that Tidemark sends: names, kinds, units and what they mean, here and nowhere else.

`docs/monitoring` is checked against this module. How a metric travels, and where its labels stand, is Airflow's affair
and `tidemark_airflow.metrics`'s; see docs/adr/0030.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

PREFIX = "tidemark"


class Kind(StrEnum):
    GAUGE = "gauge"
    """How things stand: the last value counts, however often it is sent."""
    COUNTER = "counter"
    """What was done since the last sending; sent as 0, too, so that whoever adds up knows the series."""


class Stage(StrEnum):
    PLAN = "plan"
    CONSUME = "consume"
    ARCHIVE = "archive"
    PUBLISH = "publish"


class Sent(StrEnum):
    """By which tasks, and when."""

    EACH = "after each stage that succeeded"
    CONSUME = "after consume, failed tries too"
    PUBLISH = "after publish"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """`labels`: beside the stream, which every one has."""

    name: str
    kind: Kind
    unit: str
    sent: Sent
    meaning: str
    labels: tuple[str, ...] = ()


Figures = Mapping[Metric, float]


LAG_RECORDS = Metric(
    name="lag_records",
    kind=Kind.GAUGE,
    unit="records",
    sent=Sent.EACH,
    meaning="records that Kafka has and no committed shift does, as `tidemark offsets` shows it",
)
LAG_SECONDS = Metric(
    name="lag_seconds",
    kind=Kind.GAUGE,
    unit="seconds",
    sent=Sent.EACH,
    meaning="from the lowest watermark of the open shards to now; an hour and the grace are usual",
)
OLDEST_OPEN_HOUR_AGE = Metric(
    name="oldest_open_hour_age_seconds",
    kind=Kind.GAUGE,
    unit="seconds",
    sent=Sent.EACH,
    meaning="since the end of the oldest hour that is not ready; 0 while only the present hour is not",
)
DUE = Metric(
    name="due_timestamp_seconds",
    kind=Kind.GAUGE,
    unit="Unix time",
    sent=Sent.EACH,
    meaning="when the oldest hour that is not ready should be (`ready_within`, else grace and one hour): in the "
    "past, it is late, also when nothing is sent any more",
)
HELD_HOURS = Metric(
    name="held_hours",
    kind=Kind.GAUGE,
    unit="hours",
    sent=Sent.EACH,
    meaning="hours that should be ready and are not, as `tidemark check` counts them, however old",
)
GAP_HOURS = Metric(
    name="gap_hours",
    kind=Kind.GAUGE,
    unit="hours",
    sent=Sent.EACH,
    meaning="hours whose next flag waits because of a gap that nobody accepted",
)
GROWN_RECORDS = Metric(
    name="grown_records",
    kind=Kind.GAUGE,
    unit="records",
    sent=Sent.EACH,
    meaning="written to closed timelines after their end, until these are retired: some producer has not moved",
)
LEASE_LOSSES = Metric(
    name="lease_losses",
    kind=Kind.GAUGE,
    unit="losses",
    sent=Sent.EACH,
    meaning="how often the stream's lease was taken from a holder that had not given it back, since the stream's "
    "start or a rebuild: jobs that died, hung or were evicted",
)
STAGE_SECONDS = Metric(
    name="stage_seconds",
    kind=Kind.GAUGE,
    unit="seconds",
    sent=Sent.EACH,
    meaning="how long the stage took the last time that it succeeded, without waiting for its hour to end",
    labels=("stage",),
)
RECORDS = Metric(
    name="records",
    kind=Kind.COUNTER,
    unit="records",
    sent=Sent.CONSUME,
    meaning="read from Kafka by shifts that were committed: lines, skewed, bad and tombstones",
)
LINES = Metric(
    name="lines",
    kind=Kind.COUNTER,
    unit="lines",
    sent=Sent.CONSUME,
    meaning="committed to their hours",
)
BYTES = Metric(
    name="bytes",
    kind=Kind.COUNTER,
    unit="bytes",
    sent=Sent.CONSUME,
    meaning="of the files that committed shifts wrote, compressed, quarantine too",
)
LATE_LINES = Metric(
    name="late_lines",
    kind=Kind.COUNTER,
    unit="lines",
    sent=Sent.CONSUME,
    meaning="of the committed ones, those whose hour was over when they were planned",
)
SKEWED_LINES = Metric(
    name="skewed_lines",
    kind=Kind.COUNTER,
    unit="lines",
    sent=Sent.CONSUME,
    meaning="in `_skewed`: their time lies outside the skew window",
)
BAD_LINES = Metric(
    name="bad_lines",
    kind=Kind.COUNTER,
    unit="records",
    sent=Sent.CONSUME,
    meaning="in `_bad`: records that cannot be a line",
)
READY_HOURS = Metric(
    name="ready_hours",
    kind=Kind.COUNTER,
    unit="hours",
    sent=Sent.PUBLISH,
    meaning="hours that got their first flag",
)
REVISIONS = Metric(
    name="revisions",
    kind=Kind.COUNTER,
    unit="flags",
    sent=Sent.PUBLISH,
    meaning="further flags of hours that were ready: late lines came",
)
ARCHIVE_RATIO = Metric(
    name="archive_ratio",
    kind=Kind.GAUGE,
    unit="files per file",
    sent=Sent.PUBLISH,
    meaning="files of consume for each archived file, in the hours that the last publish with files flagged",
)

METRICS = (
    LAG_RECORDS,
    LAG_SECONDS,
    OLDEST_OPEN_HOUR_AGE,
    DUE,
    HELD_HOURS,
    GAP_HOURS,
    GROWN_RECORDS,
    LEASE_LOSSES,
    STAGE_SECONDS,
    RECORDS,
    LINES,
    BYTES,
    LATE_LINES,
    SKEWED_LINES,
    BAD_LINES,
    READY_HOURS,
    REVISIONS,
    ARCHIVE_RATIO,
)
