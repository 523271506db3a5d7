from datetime import UTC, datetime, timedelta, timezone

import pendulum
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.errors import WrongUse
from tidemark.names import (
    Day,
    Hour,
    Interval,
    Shard,
    hours_of_day,
    isoformat,
    milliseconds,
    parse_subject,
    valid_cluster,
    valid_stream,
    valid_topic,
)

SEVEN = Hour.parse("2026-11-15T07")


@pytest.mark.parametrize(
    "name", ["", "..", "a/b", "../x", "A", "clicks\n", "cl\u0131cks", "a" * 64, "-a", "a b", "%2e"]
)
def test_a_stream_name_that_could_leave_its_root_is_refused(name: str) -> None:
    with pytest.raises(WrongUse, match=r"Cannot use .* as a stream's name: wanted a-z"):
        valid_stream(name)


@given(st.text(max_size=70))
def test_an_accepted_stream_name_is_plain_ascii_without_separators(name: str) -> None:
    try:
        valid_stream(name)
    except WrongUse:
        return
    assert name.isascii()
    assert not set(name) & set("/\\.:% \n\t\0")


def test_kafka_topics_may_have_dots_but_not_be_one() -> None:
    assert valid_topic("logs.web-1_x") == "logs.web-1_x"
    for name in (".", "..", "a/b", "é"):
        with pytest.raises(WrongUse):
            valid_topic(name)


def test_a_cluster_name_fits_into_a_connection_id() -> None:
    assert valid_cluster("main_2") == "main_2"
    with pytest.raises(WrongUse):
        valid_cluster("main-2")


def test_a_shard_is_written_as_timeline_and_partition() -> None:
    assert str(Shard(1, 3)) == "0001-3"
    assert Shard.parse("0001-3") == Shard(1, 3)
    with pytest.raises(WrongUse, match="wanted a timeline and a partition such as 0001-3"):
        Shard.parse("1-3")


def test_shards_are_ordered_by_number_and_not_by_text() -> None:
    assert sorted([Shard(2, 0), Shard(1, 10), Shard(1, 9)]) == [Shard(1, 9), Shard(1, 10), Shard(2, 0)]


def test_an_hour_has_a_day_and_two_digits() -> None:
    assert (SEVEN.day, SEVEN.hh, str(SEVEN)) == ("2026-11-15", "07", "2026-11-15T07")
    assert isoformat(SEVEN.end_ms) == "2026-11-15T08:00:00Z"


@pytest.mark.parametrize("text", ["2026-11-15T07:00Z", "2026-11-15T07:00:00Z", "2026-11-15T07:00:00+00:00"])
def test_an_hour_may_be_given_as_an_iso_time_in_utc(text: str) -> None:
    assert Hour.parse(text) == SEVEN


@pytest.mark.parametrize(
    "text", ["", "2026-11-15", "2026-11-15T24", "2026-13-01T00", "2026-11-15T07:30", "2026-11-15T07:00:00", "07"]
)
def test_what_is_no_hour_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match=r"wanted UTC, such as 2026-11-15T07"):
        Hour.parse(text)


@given(st.integers(min_value=0, max_value=253_402_300_799_999))
def test_every_time_lies_in_its_hour(time_ms: int) -> None:
    hour = Hour.of(time_ms)
    assert hour.start_ms <= time_ms < hour.end_ms
    assert Hour.parse(str(hour)) == hour


def test_a_day_has_24_hours_in_order() -> None:
    hours = hours_of_day("2026-11-15")
    assert len(hours) == 24
    assert hours[7] == SEVEN
    assert {hour.day for hour in hours} == {"2026-11-15"}


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(WrongUse, match="it has no time zone"):
        milliseconds(datetime(2026, 11, 15, 7))  # noqa: DTZ001 - that is the point


def test_a_time_in_another_zone_is_the_same_moment() -> None:
    berlin = datetime(2026, 11, 15, 8, tzinfo=timezone(timedelta(hours=1)))
    assert milliseconds(berlin) == milliseconds(datetime(2026, 11, 15, 7, tzinfo=UTC)) == SEVEN.start_ms


def test_airflows_own_kind_of_time_is_taken() -> None:
    assert milliseconds(pendulum.datetime(2026, 11, 15, 7, microsecond=5999)) == SEVEN.start_ms + 5


def test_a_shift_is_named_after_the_start_of_its_interval() -> None:
    assert Interval(SEVEN.start_ms, SEVEN.end_ms).shift == "20261115T0700"


def test_an_interval_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(WrongUse, match="the start before the end"):
        Interval(SEVEN.end_ms, SEVEN.start_ms)


@pytest.mark.parametrize("text", ["2026-11-31", "20261115", "2026-W46-7", "today", ""])
def test_what_is_not_a_day_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="as a day: wanted UTC, such as 2026-11-15"):
        Day(text)


def test_a_flag_is_of_an_hour_or_a_day() -> None:
    assert parse_subject("2026-11-15T07") == SEVEN
    assert parse_subject("2026-11-15") == Day("2026-11-15")
