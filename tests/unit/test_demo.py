from tidemark.demo.airflow import backfill_command
from tidemark.demo.sample import sample_hour
from tidemark.names import HOUR_MS, Hour

SEVEN = Hour.parse("2026-11-15T07")


def test_sample_lines_are_the_same_every_time_and_stay_in_their_hour() -> None:
    first = list(sample_hour("clicks", SEVEN, partitions=4, lines=300))
    assert first == list(sample_hour("clicks", SEVEN, partitions=4, lines=300))
    assert len(first) == 300
    assert {record.partition for record in first} == {0, 1, 2, 3}
    assert all(SEVEN.start_ms <= record.time_ms < SEVEN.end_ms for record in first)
    assert [record.time_ms for record in first] == sorted(record.time_ms for record in first)


def test_two_topics_have_different_lines() -> None:
    clicks, payments = (next(iter(sample_hour(name, SEVEN, partitions=1, lines=1))) for name in ("clicks", "payments"))
    assert clicks != payments


def test_a_backfill_asks_for_the_first_to_the_last_hour() -> None:
    command = backfill_command("ingest_clicks", [SEVEN, Hour(SEVEN.start_ms + HOUR_MS)])
    assert command[command.index("--from-date") + 1] == "2026-11-15T07:00:00Z"
    assert command[command.index("--to-date") + 1] == "2026-11-15T08:00:00Z"
