from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemark.consume.lines import parse_messages
from tidemark.consume.timestamps import parse_message


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


RECORD_MS = ms("2015-01-01T00:00:05")
STORED = b"\xfe\x00" + (1399482308123).to_bytes(8, "big")

AS_KABOOM = [
    (b"2014-05-07T17:05:08.123 This is a test", 1399482308123, b"This is a test"),
    (b"2014-05-07T17:05:08.123000 This is a test", 1399482308123, b"This is a test"),
    (b"2014-05-07T17:05:08.1 This is a test", 1399482308100, b"This is a test"),
    (b"2014-05-07T17:05:08. This is a test", 1399482308000, b"This is a test"),
    (b"2014-05-07T17:05:08+01 This is a test", 1399478708000, b"This is a test"),
    (b"2014-05-07T17:05:08-01:30 This is a test", 1399487708000, b"This is a test"),
    (b"2014-05-07T17:05:08-0130 This is a test", 1399487708000, b"This is a test"),
    (b"<34>1 2014-05-07T17:05:08.123456-04:00 host app", 1399496708123, b"host app"),
    (b"<34>May  7 17:05:08 host app", 1399482308000, b"host app"),
    (b"20140507T170508Z x", 1399482308000, b"x"),
    (b"2014 05 07 17 05 08 x", 1399482308000, b"x"),
    (b"20140507170508 x", 1399482308000, b"x"),
    (b"2014-05-07T17:05:08  two", 1399482308000, b" two"),
    (b"2014-05-07T17:05:08", 1399482308000, b""),
    (b"2014-05-07T17:05:08|x", 1399482308000, b"|x"),
    (b"no timestamp here", None, b"no timestamp here"),
    (b"<34>no ts", None, b"no ts"),
    (b"<191>x", None, b"x"),
    (b"<192>x", None, b"<192>x"),
    (b"<034>x", None, b"<034>x"),
    (b"<0>x", None, b"x"),
    (STORED + b"no ts but stored", 1399482308123, b"no ts but stored"),
    (STORED + b"<34>2014-05-07T17:05:09Z told", 1399482309000, b"told"),
    (b"\xfe\x00\x00", None, b"\xfe\x00\x00"),
    (b"", None, b""),
]

PUT_RIGHT = [
    (b"100 bottles of beer", None, b"100 bottles of beer"),
    (b"<34>1 bottle", None, b"1 bottle"),
    (b"<34>1 - host app", None, b"- host app"),
    (b"1 2014-05-07T17:05:08Z host", 1399482308000, b"host"),
    (b"3 May 12 10:00:00 x", None, b"3 May 12 10:00:00 x"),
    (b"<34>1 May  7 17:05:08 host", 1399482308000, b"host"),
    (b"May 7 17:05:08 one blank", 1399482308000, b"one blank"),
    (b"May 07 17:05:08 x", 1399482308000, b"x"),
    (b"May  7 2014 17:05:08 x", None, b"May  7 2014 17:05:08 x"),
    (b"2014-13-07T17:05:08 x", None, b"2014-13-07T17:05:08 x"),
    (b"2014-05-07T25:05:08 x", None, b"2014-05-07T25:05:08 x"),
    (b"2014-05-07T17:60:08 x", None, b"2014-05-07T17:60:08 x"),
    (b"2014-02-29T17:05:08 x", None, b"2014-02-29T17:05:08 x"),
    (b"2012-02-29T17:05:08 x", ms("2012-02-29T17:05:08"), b"x"),
    (b"2014-05-07T17:05:08+24:00 x", None, b"2014-05-07T17:05:08+24:00 x"),
    (b"Dec 31 23:59:59 x", ms("2014-12-31T23:59:59"), b"x"),
    (b"Jan  3 00:00:00 its clock runs ahead", ms("2015-01-03T00:00:00"), b"its clock runs ahead"),
    (b"Jun 30 00:00:00 half a year old", ms("2014-06-30T00:00:00"), b"half a year old"),
    (b"2014-05-07 17:05:08,123 comma", 1399482308123, b"comma"),
    (b"2014-05-07 17:05:08, no fraction", 1399482308000, b", no fraction"),
    (b"2014/05/07 17:05:08 slashes", 1399482308000, b"slashes"),
    (b"1399482308 seconds", 1399482308000, b"seconds"),
    (b"1399482308.5 seconds", 1399482308500, b"seconds"),
    (b"1399482308,1239 seconds", 1399482308123, b"seconds"),
    (b"1399482308123 ms", 1399482308123, b"ms"),
    (b"1399482308", None, b"1399482308"),
    (b"0999999999 too small", None, b"0999999999 too small"),
    (b"4102444800 too large", None, b"4102444800 too large"),
    (b"13994823081 eleven digits", None, b"13994823081 eleven digits"),
    (b"1610122334 45 is no year 1610", 1610122334000, b"45 is no year 1610"),
    (b"20140507170508999 an id", None, b"20140507170508999 an id"),
    (b"2014-05-07T17:05:08.123.4 x", None, b"2014-05-07T17:05:08.123.4 x"),
    (b"2014-05-07T17:05:08Zebra", None, b"2014-05-07T17:05:08Zebra"),
]


@pytest.mark.parametrize(("message", "time", "line"), AS_KABOOM + PUT_RIGHT)
def test_message_becomes_time_and_line(message: bytes, time: int | None, line: bytes) -> None:
    assert parse_message(message, RECORD_MS) == (time, line)
    assert parse_column([message], [RECORD_MS]) == [(time, line)]


def test_a_message_without_a_time_gets_its_records() -> None:
    times, _, had_time = parse_messages(pa.array([b"a", b"1399482308 b"]), pa.array([7, 8]))
    assert times.to_pylist() == [7, 1399482308000]
    assert had_time.to_pylist() == [False, True]


def test_leap_day_without_a_year_is_of_a_leap_year() -> None:
    assert parse_message(b"Feb 29 12:00:00 x", ms("2013-01-05T00:00:00"))[0] == ms("2012-02-29T12:00:00")
    assert parse_message(b"Feb 29 12:00:00 x", ms("2015-03-05T00:00:00"))[0] is None


def test_bytes_of_the_next_message_never_complete_this_one() -> None:
    messages = [b"2014-05-07T17:05", b":08 rest", b"2014-05-07T17:05:0", b"8 x", b"<3", b"4>y"]
    parsed = parse_column(messages, [RECORD_MS] * len(messages))
    assert parsed == [(None, message) for message in messages]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_slices_and_both_binary_types_are_read_alike(kind: pa.DataType) -> None:
    messages = [message for message, _, _ in AS_KABOOM + PUT_RIGHT]
    column = pa.array([b"2014-05-07T17:05:08 before", *messages, b"2014-05-07T17:05:08 after"], kind)
    times, lines, _ = parse_messages(column[1:-1], pa.array([0, *[RECORD_MS] * len(messages), 0])[1:-1])
    wanted = [(time if time is not None else RECORD_MS, line) for _, time, line in AS_KABOOM + PUT_RIGHT]
    assert list(zip(times.to_pylist(), lines.to_pylist(), strict=True)) == wanted
    assert lines.type == kind


def test_common_layouts_never_go_through_the_rule_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(message: bytes, record_ms: int) -> tuple[int | None, bytes]:
        raise AssertionError(message, record_ms)

    monkeypatch.setattr("tidemark.consume.lines.parse_message", refuse)
    messages = [
        b"2014-05-07T17:05:08Z x",
        b"2014-05-07 17:05:08,123 x",
        b"2014/05/07 17:05:08.123456789+0200 x",
        b"<34>1 2014-05-07T17:05:08.123456-04:00 x",
        b"<191>May  7 17:05:08 x",
        b"May 17 17:05:08 x",
        b"<34>1 May  7 17:05:08 x",
        b"1399482308 x",
        b"<34>1399482308.123 x",
        b"1399482308,123456789 x",
        b"1399482308123 x",
        b"20140507T170508Z x",
        b"<34>1 20140507170508.5+02:00 x",
        b"<34>no time",
        b"DEBUG no time",
        b"",
    ]
    _, lines, had_time = parse_messages(pa.array(messages), pa.array([RECORD_MS] * len(messages)))
    assert had_time.to_pylist() == [True] * 13 + [False] * 3
    assert lines.to_pylist() == [b"x"] * 13 + [b"no time", b"DEBUG no time", b""]


def parse_column(messages: list[bytes], records: list[int]) -> list[tuple[int | None, bytes]]:
    columns = parse_messages(pa.array(messages, pa.binary()), pa.array(records, pa.int64()))
    times, lines, had_time = (column.to_pylist() for column in columns)
    assert all(had or time == record for time, had, record in zip(times, had_time, records, strict=True))
    return [(time if had else None, line) for time, line, had in zip(times, lines, had_time, strict=True)]


PARTS = [
    b"<34>", b"<7>", b"<191>", b"<192>", b"1 ", b"9 ", b"100 ", b"2014", b"1969", b"9999", b"05", b"02",
    b"29", b"13", b"17", b"24", b"60", b"-", b"/", b":", b"T", b" ", b"  ", b".", b",", b"123", b"123456789",
    b"Z", b"+01", b"-0130", b"+01:30", b"-9", b"May", b"Feb", b"Dec", b"31", b" 7", b"1399482308",
    b"1399482308123", b"x", b"\0", b"\xff", STORED,
]  # fmt: skip

digits = st.integers(0, 99).map(lambda number: b"%02d" % number)
dates = st.builds(
    lambda *parts: b"".join(parts),
    st.sampled_from([b"", b"<34>", b"<0>", b"<191>", b"<34>1 ", b"2 ", b"<34>11 "]),
    st.sampled_from([b"2014", b"1970", b"1969", b"2000", b"9999", b"2100"]),
    st.sampled_from([b"-", b"/", b"", b" "]),
    digits,
    st.sampled_from([b"-", b"/"]),
    digits,
    st.sampled_from([b"T", b" ", b"t", b" T"]),
    digits,
    st.just(b":"),
    digits,
    st.just(b":"),
    digits,
    st.sampled_from([b"", b".", b",", b".1", b",12", b".123", b".123456", b".123456789", b".1234567890"]),
    st.sampled_from([b"", b"Z", b"+01", b"-0130", b"+05:30", b"+24", b"-00:60", b"+1", b"-01:", b"+01:3"]),
    st.sampled_from([b" ", b"  ", b"", b"x", b": ", b":5"]),
    st.sampled_from([b"", b"line", b"\xff"]),
)
names = st.builds(
    lambda *parts: b"".join(parts),
    st.sampled_from([b"", b"<34>", b"<34>1 ", b"1 "]),
    st.sampled_from([b"Jan", b"Feb", b"May", b"Dec", b"Mai", b"jan"]),
    st.sampled_from([b" ", b"  ", b"-"]),
    st.one_of(digits, st.integers(0, 9).map(lambda number: b"%d" % number)),
    st.just(b" "),
    digits,
    st.just(b":"),
    digits,
    st.just(b":"),
    digits,
    st.sampled_from([b"", b".5", b"Z", b"+01"]),
    st.sampled_from([b" ", b"", b"x", b" line"]),
)
likely_digits = st.sampled_from([b"00", b"01", b"07", b"12", b"23", b"28", b"29", b"30", b"31", b"59"])
good_dates = st.builds(
    lambda pri, month, day, hour, minute, second, fraction, zone, rest: (
        pri + b"2012-%s-%sT%s:%s:%s" % (month, day, hour, minute, second) + fraction + zone + b" " + rest
    ),
    st.sampled_from([b"", b"<34>", b"<34>1 "]),
    *[likely_digits] * 5,
    st.sampled_from([b"", b".1", b",12", b".123", b".999999"]),
    st.sampled_from([b"", b"Z", b"+01", b"-0130", b"+05:30"]),
    st.binary(max_size=5),
)
epochs = st.builds(
    lambda *parts: b"".join(parts),
    st.sampled_from([b"", b"<34>", b"<34>1 ", b"1 "]),
    st.sampled_from([b"1399482308", b"1399482308123", b"0999999999", b"1969123123", b"1970010100", b"2012050717",
                     b"2012050717050", b"4102444799", b"4102444800", b"139948230", b"139948230812"]),
    st.sampled_from([b"", b".", b",", b".1", b",12", b".123", b".123456789", b".1234567890"]),
    st.sampled_from([b" ", b"", b"x", b" 0508 x", b"  line"]),
)  # fmt: skip
compact = st.builds(
    lambda *parts: b"".join(parts),
    st.sampled_from([b"", b"<34>", b"<34>1 ", b"2 "]),
    st.sampled_from([b"20140507", b"19690507", b"20120229", b"20130229", b"20141301"]),
    st.sampled_from([b"T", b"", b" ", b"t", b"-"]),
    st.sampled_from([b"170508", b"240000", b"235959", b"17050"]),
    st.sampled_from([b"", b".", b".1", b",123", b".1234567890"]),
    st.sampled_from([b"", b"Z", b"+01", b"-0130", b"+24", b"+1"]),
    st.sampled_from([b" ", b"", b"x", b": ", b" line"]),
)
any_parts = st.lists(st.sampled_from(PARTS), max_size=12).map(b"".join)
messages_of_all_kinds = st.one_of(dates, good_dates, names, epochs, compact, any_parts, st.binary(max_size=40))
record_times = st.one_of(
    st.integers(ms("1971-01-01T00:00:00"), ms("2030-01-01T00:00:00")),
    st.sampled_from([-1, 0, ms("2016-02-29T00:00:00"), ms("2015-12-31T23:59:59"), 2**62, -(2**62)]),
)


@given(st.lists(st.tuples(messages_of_all_kinds, record_times), max_size=20))
@example([(b"2014-05-07T17:05:08 ", 0)])
def test_columns_are_parsed_as_the_rule_parses_each_message(batch: list[tuple[bytes, int]]) -> None:
    parsed = parse_column([message for message, _ in batch], [record for _, record in batch])
    assert parsed == [parse_message(message, record) for message, record in batch]
