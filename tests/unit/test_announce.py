from typing import Any

from tidemark.ledger.records import Announcement
from tidemark.names import Hour, isoformat
from tidemark.publish.announce import DOUBTED_MS, doubted

PUBLISHED_MS = Hour.parse("2026-11-15T07").end_ms + 1


def flag(revision: int, published_ms: int) -> dict[str, Any]:
    return {"revision": revision, "published": isoformat(published_ms)}


def test_without_a_ledger_a_flag_is_one_whose_event_may_have_been_sent() -> None:
    flags = [flag(1, PUBLISHED_MS), flag(2, PUBLISHED_MS + 1000)]
    assert doubted(flags, PUBLISHED_MS + 5000) == (
        Announcement(revision=1, published_ms=PUBLISHED_MS, handed=True),
        Announcement(revision=2, published_ms=PUBLISHED_MS + 1000, handed=True),
    )


def test_events_that_airflow_may_have_cleaned_away_are_not_asked_for() -> None:
    """Asked for without a bound they would all be sent again, and every consumer would run for hours of long ago."""
    flags = [flag(1, PUBLISHED_MS), flag(2, PUBLISHED_MS + 1)]
    assert [found.revision for found in doubted(flags, PUBLISHED_MS + DOUBTED_MS)] == [2]
