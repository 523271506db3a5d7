"""Archive the hours of a stream, or look whether what is archived is whole."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.archive.here import Here
from tidemark.archive.hours import HourArchiver, Spread
from tidemark.archive.leftovers import Leftovers
from tidemark.archive.survey import Survey, Surveyor
from tidemark.config import Stream
from tidemark.drive.services import Services, now_ms, services
from tidemark.environment import Connections
from tidemark.errors import NotFound, TidemarkError
from tidemark.ledger.records import ArchivePlan, HourState
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.logs import logger
from tidemark.names import Day, Hour, Task, duration_ms
from tidemark.storage import open_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOURS_AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What `tidemark archive check` found, and `repair` would change."""

    surveys: tuple[Survey, ...]
    without_index: dict[Hour, str]
    open_plans: dict[Hour, ArchivePlan]
    leftovers: tuple[str, ...]


def archive_stream(
    stream: Stream, connections: Connections, task: Task, open_spark: "Callable[[], SparkSession]"
) -> None:
    """Archive every hour that waits for it and that nobody else works on, several at once.

    Spark is asked for only when there is such an hour. One that fails does not keep the others from being archived.
    """
    with _archiver(stream, connections, task) as (around, archiver):
        Leftovers(ledger=around.ledger, storage=around.storage()).delete()
        waiting = archiver.waiting()
        if not waiting:
            return
        spark = open_spark()
        from tidemark.archive.spark import OverSpark

        busy = _archive_hours(archiver, waiting, OverSpark(spark))
        # Whoever had them may be done with them, or dead.
        still = set(archiver.waiting())
        _archive_hours(archiver, [hour for hour in busy if hour in still], OverSpark(spark))


def check_archive(
    stream: Stream, day: Day | None, connections: Connections, *, on_hour: Callable[[int], None] = lambda _: None
) -> Checked:
    """Read every byte of every target, of one day or of all; change nothing. `on_hour` is told how many there are."""
    storage = open_storage(stream.root, connections)
    with open_session(connections) as client:
        ledger = StreamLedger(client, stream.name)
        surveyor = Surveyor(ledger=ledger, storage=storage)
        surveys, plans, without_index = [], {}, {}
        hours = _hours(ledger, day)
        for hour in hours:
            record = ledger.hour(hour).value
            if record.archiving:
                plans[hour] = record.archiving
            try:
                surveys.append(surveyor.look(hour, record, Here().verify))
            except NotFound as error:
                without_index[hour] = str(error)
            on_hour(len(hours))
        leftovers = Leftovers(ledger=ledger, storage=storage).find()
    return Checked(surveys=tuple(surveys), without_index=without_index, open_plans=plans, leftovers=tuple(leftovers))


def repair_archive(stream: Stream, day: Day | None, connections: Connections, task: Task) -> list[Hour]:
    """Do what `check_archive` found to be done, in this process. The hours that another worker holds are returned."""
    with _archiver(stream, connections, task) as (around, archiver):
        Leftovers(ledger=around.ledger, storage=around.storage()).delete()
        return _archive_hours(archiver, _hours(around.ledger, day), Here(), deep=True)


@contextmanager
def _archiver(stream: Stream, connections: Connections, task: Task) -> Iterator[tuple[Services, HourArchiver]]:
    with services(stream, connections, task) as around, around.hour_leases() as leases:
        rollover = stream.archive.rollover
        storage = around.storage()
        yield (
            around,
            HourArchiver(
                ledger=around.ledger,
                storage=storage,
                leases=leases,
                surveyor=Surveyor(ledger=around.ledger, storage=storage),
                target_bytes=stream.archive.target_size,
                rollover_ms=None if rollover is None else duration_ms(rollover),
                now_ms=now_ms,
            ),
        )


def _archive_hours(archiver: HourArchiver, hours: list[Hour], spread: Spread, *, deep: bool = False) -> list[Hour]:
    """The hours that somebody else works on. When some failed, raise the first error at the end."""
    errors: list[TidemarkError] = []

    def archive(hour: Hour) -> bool:
        try:
            return archiver.archive(hour, spread, deep=deep)
        except TidemarkError as error:
            logger(__name__, stream=archiver.ledger.stream, hour=hour).error("is not archived: %s", error)
            errors.append(error)
            return True

    with ThreadPoolExecutor(HOURS_AT_ONCE) as threads:
        done = list(threads.map(archive, hours))
    if errors:
        raise errors[0]
    return [hour for hour, is_done in zip(hours, done, strict=True) if not is_done]


def _hours(ledger: StreamLedger, day: Day | None) -> list[Hour]:
    return [
        hour
        for hour, node in ledger.hours().items()
        if day in (None, Day(hour.day)) and node.value.state is not HourState.EXPIRED
    ]
