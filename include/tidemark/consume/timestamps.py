"""From one message to its time and line: the rule, told for a single message.

`tidemark.consume.lines` applies it to whole columns and comes back here for what is rare.

1. `FE 00` and eight bytes, a big-endian epoch in ms: a stored time, used when the text has none. Stripped.
2. `<PRI>`, 0 to 191 without a leading zero. Stripped.
3. A version as in RFC 5424, one to three digits and a space: stripped only before a date with a year, or
   after a PRI also before a month's name or the `-` that means no time. `100 bottles of beer` keeps its 100.
4. The time, and one space behind it. Stripped.
   - `YYYY MM DD HH MM SS` or `MMM DD HH MM SS`, between the parts any run (or none) of space, `-`, `:`, `T`,
     in the date also `/`; the year 1970 to 9999, the day one digit or two after a month's name; a fraction
     after `.` or `,`, cut to ms; a zone `Z`, `±HH`, `±HHMM`, `±HH:MM` that touches the time, none being UTC.
     A date that no calendar has is no time, nor is one that goes on (a letter, a digit, `:05`).
   - An epoch, only with a space behind it, from 2001-09-09T01:46:40Z until the year 2100: ten digits of
     seconds with or without a fraction, or thirteen digits of ms.

A year that is not told is the latest with which the time is at most a week after the record's own: a line may
be old, and its clock may run ahead over New Year, but it does not come from next spring.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

STORED: Final = b"\xfe\x00"
STORED_SIZE: Final = 10
MONTHS: Final = (
    b"Jan",
    b"Feb",
    b"Mar",
    b"Apr",
    b"May",
    b"Jun",
    b"Jul",
    b"Aug",
    b"Sep",
    b"Oct",
    b"Nov",
    b"Dec",
)
FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 9999
LAST_MS: Final = 253_402_300_799_999
"""The last millisecond of the last year."""

LEAD_MS: Final = 7 * 86_400_000
"""How far a time with a guessed year may be ahead of its record."""

FIRST_EPOCH: Final = 1_000_000_000
_END_OF_EPOCHS: Final = 4_102_444_800

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

_PRI: Final = re.compile(rb"<(?:0|[1-9][0-9]?|1[0-8][0-9]|19[01])>")
_VERSION: Final = re.compile(rb"[1-9][0-9]{0,2} ")
_NO_TIME: Final = re.compile(rb"- ")
_YEAR_MONTH_DAY: Final = rb"(?P<year>[0-9]{4})[ \-:/T]*(?P<month>[0-9]{2})[ \-:/T]*(?P<day>[0-9]{2})"
_NAME_DAY: Final = rb"(?P<name>" + b"|".join(MONTHS) + rb")[ \-:/T]*(?P<day>[0-9]{2}|[0-9](?=[ \-:T]))"
# No possessive quantifiers: with them Python 3.11.2, which Debian has, finds wrong groups.
_CLOCK: Final = (
    rb"[ \-:T]*(?P<hour>[0-9]{2})[ \-:T]*(?P<minute>[0-9]{2})[ \-:T]*(?P<second>[0-9]{2})"
    rb"(?:\.(?P<point>[0-9]*)|,(?P<comma>[0-9]+)|(?!\.))"
    rb"(?:Z|(?P<sign>[+-])(?P<zone_hour>[0-9]{2})(?::?(?P<zone_minute>[0-9]{2}))?)?"
    rb"(?![0-9A-Za-z_]|[:+\-/.,][0-9])"
)
_WITH_YEAR: Final = re.compile(_YEAR_MONTH_DAY + _CLOCK)
_WITH_NAME: Final = re.compile(_NAME_DAY + _CLOCK)
_SECONDS: Final = re.compile(rb"(?P<seconds>[0-9]{10})(?:[.,](?P<fraction>[0-9]+))?(?= )")
_MILLISECONDS: Final = re.compile(rb"(?P<milliseconds>[0-9]{13})(?= )")

_Found = tuple[int, int]
"""A time in ms, and where it ends in the message."""


def parse_message(message: bytes, record_ms: int) -> tuple[int | None, bytes]:
    """The message's own time, None when it has none, and what remains as the line."""
    stored, body = _take_stored(message)
    pri = _PRI.match(body)
    start = pri.end() if pri else 0
    version = _VERSION.match(body, start)
    found = _find_time(body, start, record_ms)
    if found is None and version:
        found = _find_time_behind_version(body, version.end(), bool(pri), record_ms)
        if found is None and pri and _NO_TIME.match(body, version.end()):
            start = version.end()
    if found is None:
        return stored, body[start:]
    time, end = found
    return time, body[end + 1 :] if body[end : end + 1] == b" " else body[end:]


def _take_stored(message: bytes) -> tuple[int | None, bytes]:
    if len(message) < STORED_SIZE or not message.startswith(STORED):
        return None, message
    time = int.from_bytes(message[len(STORED) : STORED_SIZE], "big", signed=True)
    return time, message[STORED_SIZE:]


def _find_time(body: bytes, start: int, record_ms: int) -> _Found | None:
    return (
        _find_with_year(body, start)
        or _find_with_name(body, start, record_ms)
        or _find_seconds(body, start)
        or _find_milliseconds(body, start)
    )


def _find_time_behind_version(body: bytes, start: int, has_pri: bool, record_ms: int) -> _Found | None:
    found = _find_with_year(body, start)
    if found is None and has_pri:
        return _find_with_name(body, start, record_ms)
    return found


def _find_with_year(body: bytes, start: int) -> _Found | None:
    match = _WITH_YEAR.match(body, start)
    if match is None:
        return None
    time = _time_of(match, int(match["year"]), int(match["month"]))
    return None if time is None else (time, match.end())


def _find_with_name(body: bytes, start: int, record_ms: int) -> _Found | None:
    match = _WITH_NAME.match(body, start)
    if match is None:
        return None
    reference = min(max(record_ms, 0), LAST_MS)
    year = (_EPOCH + reference * _MILLISECOND).year
    month = MONTHS.index(match["name"]) + 1
    guesses = (_time_of(match, guess, month) for guess in (year + 1, year, year - 1))
    fitting = (time for time in guesses if time is not None and time <= reference + LEAD_MS)
    time = next(fitting, None)
    return None if time is None else (time, match.end())


def _find_seconds(body: bytes, start: int) -> _Found | None:
    match = _SECONDS.match(body, start)
    if match is None:
        return None
    return _plausible(int(match["seconds"]) * 1000 + _cut_to_ms(match["fraction"]), match.end())


def _find_milliseconds(body: bytes, start: int) -> _Found | None:
    match = _MILLISECONDS.match(body, start)
    return None if match is None else _plausible(int(match["milliseconds"]), match.end())


def _plausible(time: int, end: int) -> _Found | None:
    return (time, end) if FIRST_EPOCH * 1000 <= time < _END_OF_EPOCHS * 1000 else None


def _time_of(match: re.Match[bytes], year: int, month: int) -> int | None:
    if not FIRST_YEAR <= year <= LAST_YEAR:
        return None
    day, hour, minute, second = (int(match[part]) for part in ("day", "hour", "minute", "second"))
    try:
        local = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    zone = _zone_of(match)
    if zone is None:
        return None
    return (local - _EPOCH) // _MILLISECOND + _cut_to_ms(match["point"] or match["comma"]) - zone


def _zone_of(match: re.Match[bytes]) -> int | None:
    """How far local time is ahead of UTC, in ms; None when no zone is."""
    if match["sign"] is None:
        return 0
    hours, minutes = int(match["zone_hour"]), int(match["zone_minute"] or 0)
    if hours > 23 or minutes > 59:
        return None
    distance = (hours * 60 + minutes) * 60_000
    return -distance if match["sign"] == b"-" else distance


def _cut_to_ms(fraction: bytes | None) -> int:
    return int((fraction or b"")[:3].ljust(3, b"0"))
