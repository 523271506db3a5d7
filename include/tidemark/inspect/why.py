"""Why an hour or a day is not ready, or what proves that it is: the ledger, Kafka, and the flag itself."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from kazoo.client import KazooClient

from tidemark.config import Stream
from tidemark.environment import Connections
from tidemark.errors import ServiceUnreachable
from tidemark.inspect.offsets import view_offsets
from tidemark.inspect.workers import view_lease
from tidemark.ledger.records import HourRecord, HourState, Positions
from tidemark.ledger.stream import StreamLedger
from tidemark.lineage import alarms_of
from tidemark.names import Day, Hour, hours_of_day, isoformat
from tidemark.publish.ask import ready_revision
from tidemark.publish.flag import read_hour_flag
from tidemark.publish.rule import Cause, Reason, reasons_against
from tidemark.storage import Storage

AsksAirflow = Callable[[str, Hour], list[str]]
"""What Airflow knows of a stream's hour."""

_AIRFLOW_MAY_KNOW = {Cause.NEVER_PLANNED, Cause.LAGGING, Cause.NOT_ARCHIVED}


@dataclass(frozen=True, slots=True, kw_only=True)
class HourAnswer:
    """`notes`: what else is known of the causes. `flag`: the newest one, with its proof."""

    hour: Hour
    revision: int
    reasons: tuple[Reason, ...]
    notes: tuple[str, ...]
    flag: dict[str, Any] | None

    @property
    def is_ready(self) -> bool:
        return self.revision > 0

    def lines(self, stream: str) -> list[str]:
        """In plain words."""
        head = f"{stream}/{self.hour}: {_state(self.revision)}"
        lines = [f"{head}; the next revision waits" if self.is_ready and self.reasons else head]
        for reason in self.reasons:
            lines += [f"  - {reason.text}", f"    → {reason.remedy}"]
        return [*lines, *(f"  {note}" for note in self.notes), *(_proof(self.flag) if self.flag else ())]

    def as_json(self) -> dict[str, Any]:
        return {
            "hour": str(self.hour),
            "ready": self.is_ready,
            "revision": self.revision,
            "reasons": [asdict(reason) for reason in self.reasons],
            "notes": list(self.notes),
            "flag": self.flag,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DayAnswer:
    day: Day
    revision: int
    hours: tuple[HourAnswer, ...]
    """Of those that are not ready."""

    @property
    def is_ready(self) -> bool:
        return self.revision > 0

    def lines(self, stream: str) -> list[str]:
        """In plain words: the hours that it lacks, and why of the first."""
        head = f"{stream}/{self.day}: {_state(self.revision)}"
        if not self.hours:
            return [head]
        names = ", ".join(str(hour.hour) for hour in self.hours)
        return [f"{head}: {len(self.hours)} of its hours are not", f"  {names}", *self.hours[0].lines(stream)]

    def as_json(self) -> dict[str, Any]:
        return {
            "day": str(self.day),
            "ready": self.is_ready,
            "revision": self.revision,
            "hours": [hour.as_json() for hour in self.hours],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The stream, and all that may know something."""

    client: KazooClient
    stream: Stream
    connections: Connections
    storage: Storage
    ask_airflow: AsksAirflow
    now_ms: int

    @property
    def ledger(self) -> StreamLedger:
        return StreamLedger(self.client, self.stream.name)


def explain_hour(asked: Asked, hour: Hour) -> HourAnswer:
    record, positions = asked.ledger.hour(hour).value, asked.ledger.positions().value
    reasons = reasons_against(hour, record, positions, asked.now_ms)
    revision = 0 if record.state is HourState.EXPIRED else record.revision
    flag = read_hour_flag(asked.storage, hour, revision) if revision else None
    notes = (*_notes(asked, hour, record, positions, reasons), *alarms_of(asked.ledger.timelines()))
    return HourAnswer(hour=hour, revision=revision, reasons=reasons, notes=notes, flag=flag)


def explain_day(asked: Asked, day: Day) -> DayAnswer:
    name = asked.stream.name
    open_hours = [hour for hour in hours_of_day(str(day)) if not ready_revision(asked.client, name, hour)]
    return DayAnswer(
        day=day,
        revision=ready_revision(asked.client, name, day),
        hours=tuple(explain_hour(asked, hour) for hour in open_hours),
    )


def _state(revision: int) -> str:
    return f"ready, revision {revision}" if revision else "not ready"


def _proof(flag: dict[str, Any]) -> Iterator[str]:
    counts = ", ".join(f"{number} {name}" for name, number in flag["counts"].items())
    yield f"  published {flag['published']}: {counts}, {len(flag['files'])} files"
    for shard, row in flag["shards"].items():
        yield f"  shard {shard}: {row['proof']}, watermark {row['watermark']}, next {row['next']}"
    for gap in flag["gaps"]:
        others = f" and {gap['more']} further gaps" if "more" in gap else ""
        yield f"  gap [{gap['start']}, {gap['end']}) of shard {gap['shard']}{others}, accepted: {gap['accepted']}"


def _notes(
    asked: Asked, hour: Hour, record: HourRecord, positions: Positions, reasons: tuple[Reason, ...]
) -> Iterator[str]:
    causes = {reason.cause for reason in reasons}
    if Cause.LAGGING in causes:
        yield from _open_shift(asked.client, asked.ledger)
        yield from _switches(asked.ledger, positions)
        yield from _lags(asked.client, asked.stream, reasons, asked.connections)
    if Cause.NOT_ARCHIVED in causes and record.archiving:
        lease = record.lease
        holder = lease.owner if lease and lease.owner else "nobody"
        yield f"its archive number {record.archiving.number} was begun and is not finished; held by {holder}"
    if not reasons and not record.revision:
        yield "nothing holds it: the next publish task of the stream writes its flag"
    if not record.revision and not causes - _AIRFLOW_MAY_KNOW:
        yield from asked.ask_airflow(asked.stream.name, hour)


def _switches(ledger: StreamLedger, positions: Positions) -> Iterator[str]:
    """A timeline that was closed and is not read to its end holds the shards of the next one."""
    for order, timeline in sorted(ledger.timelines().items()):
        columns = positions.timelines.get(f"{order:04d}")
        waiting = columns.completed.count(False) if columns else 0
        if timeline.ends is not None and waiting:
            yield (
                f"a switch away from timeline {order} ({timeline.cluster}/{timeline.topic}) is under way: "
                f"{waiting} of its shards are not read to their end yet"
            )


def _open_shift(client: KazooClient, ledger: StreamLedger) -> Iterator[str]:
    opened = ledger.head().value.open
    node = ledger.shift(opened) if opened else None
    if opened and node and node.value.shift:
        planned = isoformat(node.value.shift.planned_ms)
        yield f"shift {opened} was planned at {planned} and is {node.value.state}: its consume has not committed it"
    lease = view_lease(client, ledger.stream)
    if lease and lease.is_held:
        yield f"{lease.owner} works on the stream for {lease.task}, try {lease.attempt}"
    else:
        yield "no job works on the stream"


def _lags(client: KazooClient, stream: Stream, reasons: tuple[Reason, ...], connections: Connections) -> Iterator[str]:
    """What Kafka says of the shards that lag: how far they are, and whether a transaction hangs."""
    lagging = {reason.shard for reason in reasons if reason.cause is Cause.LAGGING}
    try:
        rows = [row for row in view_offsets(client, stream.name, connections).shards if str(row.shard) in lagging]
    except ServiceUnreachable as error:
        yield str(error)
        return
    for row in rows:
        yield f"shard {row.shard}: next {row.next}, Kafka's end {row.end}, lag {row.lag} records"
        if row.stable < row.end:
            yield (
                f"shard {row.shard}: a transaction is open from offset {row.stable} on, Kafka's end is {row.end}; "
                "nothing is proven before it ends"
            )
