"""Flags of which it is not certain that whoever waits for events was told: they wait in the ledger until it is.

An event cannot be sent in the transaction that writes READY. So the flag stays `unannounced` from that transaction on,
is marked as handed over, its event is sent, and only when it was seen where it was sent to is the flag let go: a crash
in between costs a question, never an event.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from tidemark.errors import CommitFailed
from tidemark.ledger.records import Announcement
from tidemark.ledger.stream import StreamLedger
from tidemark.names import DAY_MS, Hour, hours_of_day, milliseconds, parse_subject
from tidemark.publish.flag import Flag

DOUBTED_MS = 7 * DAY_MS
"""How long after a flag was published Airflow is asked for its event when the ledger was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unannounced:
    """`handed`: somebody may have sent its event."""

    subject: str
    revision: int
    published_ms: int
    handed: bool


def unannounced_flags(ledger: StreamLedger, days: Iterable[str]) -> list[Unannounced]:
    """Of the hours and days, the oldest subject first, each one's revisions in order."""
    subjects = (subject for day in days for subject in (*map(str, hours_of_day(day)), day))
    return [flag for subject in subjects for flag in unannounced_of(ledger, subject)]


def unannounced_of(ledger: StreamLedger, subject: str) -> list[Unannounced]:
    parsed = parse_subject(subject)
    node = ledger.hour(parsed) if isinstance(parsed, Hour) else ledger.day(subject)
    return [
        Unannounced(subject=subject, revision=found.revision, published_ms=found.published_ms, handed=found.handed)
        for found in node.value.unannounced
    ]


def doubted(flags: Iterable[Flag], now_ms: int) -> tuple[Announcement, ...]:
    """Of flags without a ledger: only Airflow knows which events it has. Those of old ones it may have cleaned away."""
    found = {flag["revision"]: milliseconds(datetime.fromisoformat(flag["published"])) for flag in flags}
    return tuple(
        Announcement(revision=revision, published_ms=published_ms, handed=True)
        for revision, published_ms in found.items()
        if published_ms > now_ms - DOUBTED_MS
    )


def confirm(ledger: StreamLedger, flags: Collection[Unannounced]) -> None:
    """Their events were seen. Where the state moved on meanwhile they stay, and are seen once more."""
    for subject, revisions in _revisions(flags).items():
        with suppress(CommitFailed):
            _change(ledger, subject, partial(_let_go, revisions))


def hand_over(ledger: StreamLedger, flags: Collection[Unannounced]) -> list[Unannounced]:
    """Those that may be sent now. Where the state moved on meanwhile the flag is left to the next one."""
    marked: list[str] = []
    for subject, revisions in _revisions(flags).items():
        with suppress(CommitFailed):
            _change(ledger, subject, partial(_hand_over, revisions))
            marked.append(subject)
    return [flag for flag in flags if flag.subject in marked]


def _let_go(revisions: Collection[int], found: Announcement) -> Announcement | None:
    return None if found.revision in revisions else found


def _hand_over(revisions: Collection[int], found: Announcement) -> Announcement:
    return replace(found, handed=found.handed or found.revision in revisions)


def _revisions(flags: Iterable[Unannounced]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for flag in flags:
        found.setdefault(flag.subject, set()).add(flag.revision)
    return found


def _change(ledger: StreamLedger, subject: str, change: Callable[[Announcement], Announcement | None]) -> None:
    """In one transaction; None lets go."""
    transaction = ledger.begin(f"announce {subject}")
    parsed = parse_subject(subject)
    if isinstance(parsed, Hour):
        hour = ledger.hour(parsed)
        kept = tuple(filter(None, map(change, hour.value.unannounced)))
        ledger.put_hour(transaction, parsed, hour, replace(hour.value, unannounced=kept))
    else:
        day = ledger.day(subject)
        kept = tuple(filter(None, map(change, day.value.unannounced)))
        ledger.put_day(transaction, subject, day, replace(day.value, unannounced=kept))
    transaction.commit()
