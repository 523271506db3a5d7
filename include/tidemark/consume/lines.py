"""From messages to lines, as whole Arrow columns: `tidemark.consume.timestamps` has the rule.

Common layouts are read with numpy for all messages at once, behind a PRI and a one-digit version or not, before a
space: `YYYY-MM-DDTHH:MM:SS` (`/` for `-`, a space for `T`, fraction, zone), `YYYYMMDDTHHMMSS` (with or without the
`T`), `Mmm dd HH:MM:SS`, epochs. What looks like a time and is none of them goes through the rule one by one.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib.stride_tricks import sliding_window_view

from tidemark.boom.escape import offsets_of
from tidemark.consume.timestamps import (
    FIRST_EPOCH,
    FIRST_YEAR,
    LAST_MS,
    LAST_YEAR,
    LEAD_MS,
    MONTHS,
    STORED,
    parse_message,
)

Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

# `<191>1 `
_PREFIX: Final = 7
# Behind the prefix: 19 bytes of date and clock, ten of fraction, six of zone, and one more to see the space.
_WINDOW: Final = 36
_FRACTION_DIGITS: Final = 9
_NAMED_DIGITS: Final = (5, 7, 8, 10, 11, 13, 14)
_NAMED_SIZE: Final = 15
_SECONDS_DIGITS: Final = 10
_MILLISECONDS_DIGITS: Final = 13

_ZERO: Final = np.uint8(ord("0"))
_SPACE, _COLON, _DASH, _SLASH, _PLUS, _POINT, _COMMA = (ord(character) for character in " :-/+.,")
_NAMES: Final = tuple((name[0], name[1], name[2]) for name in MONTHS)
_MONTH_DAYS: Final = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_DAY_MS: Final = 86_400_000


def parse_messages(
    messages: pa.Array, record_times_ms: pa.Int64Array
) -> tuple[pa.Int64Array, pa.Array, pa.BooleanArray]:
    """Times, lines and whether each message had a time of its own; one without gets its record's.

    Messages are binaries (large or not) without nulls; the lines come back as the same type.
    """
    batch = _Batch.of(messages)
    records = record_times_ms.to_numpy()
    times, skipped, had_time = records.copy(), batch.pri.copy(), np.zeros(len(messages), bool)
    left = np.flatnonzero(batch.may_have_time)
    for read in _READERS:
        if len(left):
            found = read(batch, left, records)
            times[found.rows], skipped[found.rows], had_time[found.rows] = found.times, found.ends, True
            left = left[~had_time[left]]
    lines = _strip(messages, skipped)
    if len(left):
        lines = _parse_one_by_one(messages, left, times, had_time, lines)
    return pa.array(times), lines, pa.array(had_time)


@dataclass(frozen=True, slots=True)
class _Found:
    """Rows in which a layout was read, their times, and how many bytes to strip from the message."""

    rows: Longs
    times: Longs
    ends: Longs


@dataclass(frozen=True, slots=True)
class _Batch:
    """How long PRI and version are, and the bytes behind them: window[k] is the k-th of every message."""

    window: Bytes
    pri: Longs
    version: Longs
    month: Longs
    may_have_time: Mask

    @classmethod
    def of(cls, messages: pa.Array) -> "_Batch":
        offsets = offsets_of(messages).astype(np.int64)
        data = np.frombuffer(messages.buffers()[2] or b"", np.uint8)
        starts, lengths = offsets[:-1], np.diff(offsets)
        head = _windows(data, starts, lengths, _PREFIX)
        pri = _measure_pri(head)
        version = _measure_version(head, pri)
        prefix = pri + version
        window = _windows(data, starts + prefix, lengths - prefix, _WINDOW)
        month = _month_of(window)
        is_stored = (head[0] == STORED[0]) & (head[1] == STORED[1])
        may_have_time = _may_be_number(window) | (month > 0) | (version > 0) | is_stored
        return cls(window, pri, version, month, may_have_time)


def _windows(data: Bytes, starts: Longs, lengths: Longs, width: int) -> Bytes:
    """The bytes from each start on, zero from its length on; one row a place, one column a start."""
    last = max(len(data) - width, 0)
    # A window that reaches over the end of the data is taken from a copy of the end, with zeros behind it.
    tail = sliding_window_view(np.concatenate((data[last:], np.zeros(width, np.uint8))), width)
    view = sliding_window_view(data, width) if last else tail
    windows = view[np.minimum(starts, last)]
    near_end = np.flatnonzero(starts > last)
    windows[near_end] = tail[starts[near_end] - last]
    short = np.flatnonzero(lengths < width)
    windows[short] *= np.arange(width) < lengths[short, None]
    return np.ascontiguousarray(windows.T)


def _measure_pri(head: Bytes) -> Longs:
    """How many bytes `<PRI>` takes, 0 without."""
    size = np.zeros(head.shape[1], np.int64)
    is_open = head[0] == ord("<")
    if not is_open.any():
        return size
    value = np.zeros(head.shape[1], np.int64)
    for count in (1, 2, 3):
        is_open &= _is_digit(head[count])
        value = value * 10 + (head[count] - _ZERO)
        has_no_zero = (head[1] != _ZERO) | (count == 1)
        size[is_open & (head[count + 1] == ord(">")) & has_no_zero & (value <= 191)] = count + 2
    return size


def _measure_version(head: Bytes, pri: Longs) -> Longs:
    """Two bytes for a digit and a space behind the PRI."""
    digit = _pick(head, pri)
    is_version = (digit > _ZERO) & _is_digit(digit) & (_pick(head, pri + 1) == _SPACE)
    return np.where(is_version, 2, 0)


def _may_be_number(window: Bytes) -> Mask:
    """Whether a year or an epoch may begin here, or a longer version, which a space ends: no address does (`10.2.`)."""
    goes_on = _is_digit(window[0])
    ends_in_space = np.zeros_like(goes_on)
    for byte in window[1:4]:
        ends_in_space |= goes_on & (byte == _SPACE)
        goes_on = goes_on & _is_digit(byte)
    may_be: Mask = goes_on | ends_in_space
    return may_be


def _month_of(window: Bytes) -> Longs:
    """1 to 12 where a month's name stands, else 0."""
    month = np.zeros(window.shape[1], np.int64)
    candidates = np.flatnonzero((window[0] >= ord("A")) & (window[0] <= ord("S")))
    first, second, third = window[:3, candidates]
    for number, name in enumerate(_NAMES, 1):
        is_name = (first == name[0]) & (second == name[1]) & (third == name[2])
        month[candidates[is_name]] = number
    return month


@dataclass(frozen=True, slots=True, kw_only=True)
class _DateLayout:
    """At which byte of a date with a year each part begins, and what may stand between them."""

    month: int
    day: int
    hour: int
    minute: int
    second: int
    between: tuple[tuple[int, bytes], ...]

    @property
    def end(self) -> int:
        return self.second + 2

    def fits(self, window: Bytes) -> Mask:
        fits: Mask = np.ones(window.shape[1], bool)
        for place, marks in self.between:
            fits &= np.logical_or.reduce([window[place] == mark for mark in marks])
        for place in set(range(self.end)) - {place for place, _ in self.between}:
            fits &= _is_digit(window[place])
        return fits

    def read(self, batch: _Batch, rows: Longs, _records: Longs) -> _Found:
        """A date, a clock, a fraction, a zone."""
        window = _columns(batch.window, rows)
        fits = self.fits(window)
        rows, window = rows[fits], _columns(window, np.flatnonzero(fits))
        year = _number(window, 0) * 100 + _number(window, 2)
        days, are_days = _days_of(year, _number(window, self.month), _number(window, self.day))
        clock, are_clocks = _clock_of(window, self.hour, self.minute, self.second)
        milliseconds, ends, are_fractions = _read_fraction(window, self.end)
        zone, ends, are_zones = _read_zone(window, ends)
        times = days * _DAY_MS + clock + milliseconds - zone
        keep = are_days & are_clocks & are_fractions & are_zones & (_pick(window, ends) == _SPACE)
        return _found(batch, rows, times, ends, keep)


_SPACED: Final = _DateLayout(
    month=5, day=8, hour=11, minute=14, second=17,
    between=((4, b"-/"), (7, b"-/"), (10, b"T "), (13, b":"), (16, b":")),
)  # fmt: skip
_COMPACT: Final = _DateLayout(month=4, day=6, hour=9, minute=11, second=13, between=((8, b"T"),))
_DIGITS: Final = _DateLayout(month=4, day=6, hour=8, minute=10, second=12, between=())


def _read_names(batch: _Batch, rows: Longs, records: Longs) -> _Found:
    """`Mmm dd HH:MM:SS`, the year guessed; a version before it counts behind a PRI alone."""
    rows = rows[(batch.month[rows] > 0) & ((batch.version[rows] == 0) | (batch.pri[rows] > 0))]
    window = _columns(batch.window, rows)
    fits = _has_named_layout(window)
    rows, window = rows[fits], _columns(window, np.flatnonzero(fits))
    month = batch.month[rows]
    day = (window[5] - _ZERO).astype(np.int64) + np.where(window[4] == _SPACE, 0, (window[4] - _ZERO) * 10)
    clock, are_clocks = _clock_of(window, 7, 10, 13)
    reference = np.clip(records[rows], 0, LAST_MS)
    year = reference.astype("M8[ms]").astype("M8[Y]").astype(np.int64) + FIRST_YEAR
    times, fits = np.zeros(len(rows), np.int64), np.zeros(len(rows), bool)
    for guess in (year - 1, year, year + 1):
        days, are_days = _days_of(guess, month, day)
        guessed = days * _DAY_MS + clock
        fits_better = are_days & (guessed <= reference + LEAD_MS)
        times[fits_better] = guessed[fits_better]
        fits |= fits_better
    ends = np.full(len(rows), _NAMED_SIZE)
    return _found(batch, rows, times, ends, fits & are_clocks & (window[_NAMED_SIZE] == _SPACE))


def _read_seconds(batch: _Batch, rows: Longs, _records: Longs) -> _Found:
    """Ten digits, a fraction."""
    rows, window = _epochs_of(batch, rows, _SECONDS_DIGITS)
    milliseconds, ends, are_fractions = _read_fraction(window, _SECONDS_DIGITS)
    times = _long_number(window, _SECONDS_DIGITS) * 1000 + milliseconds
    return _found(batch, rows, times, ends, are_fractions & (_pick(window, ends) == _SPACE))


def _read_milliseconds(batch: _Batch, rows: Longs, _records: Longs) -> _Found:
    """Thirteen digits."""
    rows, window = _epochs_of(batch, rows, _MILLISECONDS_DIGITS)
    ends = np.full(len(rows), _MILLISECONDS_DIGITS)
    return _found(batch, rows, _long_number(window, _MILLISECONDS_DIGITS), ends, _pick(window, ends) == _SPACE)


def _epochs_of(batch: _Batch, rows: Longs, digits: int) -> tuple[Longs, Bytes]:
    """Rows that begin with so many digits of an epoch; one that may be a year as well (2032 on) is for the rule."""
    window = _columns(batch.window, rows)
    fits = batch.version[rows] == 0
    for place in range(digits):
        fits &= _is_digit(window[place])
    year = _number(window, 0) * 100 + _number(window, 2)
    fits &= (year >= FIRST_EPOCH // 10**6) & (year < FIRST_YEAR)
    return rows[fits], _columns(window, np.flatnonzero(fits))


_READERS: Final = (_SPACED.read, _read_names, _read_seconds, _read_milliseconds, _COMPACT.read, _DIGITS.read)


def _found(batch: _Batch, rows: Longs, times: Longs, ends: Longs, keep: Mask) -> _Found:
    kept = rows[keep]
    return _Found(kept, times[keep], batch.pri[kept] + batch.version[kept] + ends[keep] + 1)


def _has_named_layout(window: Bytes) -> Mask:
    has_layout: Mask = (window[4] == _SPACE) | _is_digit(window[4])
    for place in (3, 6):
        has_layout &= window[place] == _SPACE
    for place in (9, 12):
        has_layout &= window[place] == _COLON
    for place in _NAMED_DIGITS:
        has_layout &= _is_digit(window[place])
    return has_layout


def _columns(window: Bytes, rows: Longs) -> Bytes:
    return window if len(rows) == window.shape[1] else window[:, rows]


def _pick(window: Bytes, places: Longs) -> Bytes:
    """The byte at a place of its own in every message."""
    return window[places, np.arange(window.shape[1])]


def _is_digit(values: Bytes) -> Mask:
    is_digit: Mask = (values - _ZERO) < 10
    return is_digit


def _number(window: Bytes, place: int) -> Longs:
    """Two digits; what is none makes a number that nobody asked for."""
    number: Bytes = (window[place] - _ZERO) * 10 + (window[place + 1] - _ZERO)
    return number.astype(np.int64)


def _long_number(window: Bytes, digits: int) -> Longs:
    number = np.zeros(window.shape[1], np.int64)
    for digit in window[:digits]:
        number = number * 10 + (digit - _ZERO)
    return number


def _days_of(year: Longs, month: Longs, day: Longs) -> tuple[Longs, Mask]:
    """Days since 1970, and whether there is such a day."""
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    known_month = np.where(month <= 12, month, 0)
    last_day = _MONTH_DAYS[known_month] + ((known_month == 2) & is_leap)
    are_days = (year >= FIRST_YEAR) & (year <= LAST_YEAR) & (day >= 1) & (day <= last_day)
    months = (year - 1970) * 12 + known_month - 1
    return months.astype("M8[M]").astype("M8[D]").astype(np.int64) + day - 1, are_days


def _clock_of(window: Bytes, *places: int) -> tuple[Longs, Mask]:
    """Milliseconds since midnight of the hour, minute and second at these places."""
    hour, minute, second = (_number(window, place) for place in places)
    return ((hour * 60 + minute) * 60 + second) * 1000, (hour < 24) & (minute < 60) & (second < 60)


def _read_fraction(window: Bytes, place: int) -> tuple[Longs, Longs, Mask]:
    """Milliseconds, where the fraction ends, and whether it is one that is read here."""
    has_mark = (window[place] == _POINT) | (window[place] == _COMMA)
    milliseconds, ends = np.zeros(window.shape[1], np.int64), place + has_mark.astype(np.int64)
    goes_on = has_mark.copy()
    for count in range(_FRACTION_DIGITS):
        digit = window[place + 1 + count]
        goes_on &= _is_digit(digit)
        ends += goes_on
        if count < 3:
            milliseconds += np.where(goes_on, digit - _ZERO, 0).astype(np.int64) * (100, 10, 1)[count]
    is_empty = has_mark & (ends == place + 1)
    return milliseconds, ends, ~is_empty


def _read_zone(window: Bytes, starts: Longs) -> tuple[Longs, Longs, Mask]:
    """How far local time is ahead of UTC in ms, where the zone ends, and whether there is such a zone."""
    mark = _pick(window, starts)
    zone, are_zones = np.zeros(len(mark), np.int64), np.ones(len(mark), bool)
    ends = starts + (mark == ord("Z"))
    rows = np.flatnonzero((mark == _PLUS) | (mark == _DASH))
    if len(rows):
        text = _columns(window, rows)[starts[rows] + np.arange(6)[:, None], np.arange(len(rows))]
        zone[rows], size, are_zones[rows] = _measure_zone(text)
        ends[rows] += size
    return zone, ends, are_zones


def _measure_zone(text: Bytes) -> tuple[Longs, Longs, Mask]:
    """Distance in ms, size in bytes and whether there is such a zone, of six bytes each from the sign on."""
    has_colon = text[3] == _COLON
    minutes_text = np.where(has_colon, text[4:6], text[3:5])
    has_minutes = _is_digit(minutes_text[0]) & _is_digit(minutes_text[1])
    hours, minutes = _number(text, 1), np.where(has_minutes, _number(minutes_text, 0), 0)
    distance = (hours * 60 + minutes) * 60_000
    size = 3 + np.where(has_minutes, 2 + has_colon.astype(np.int64), 0)
    are_zones = _is_digit(text[1]) & _is_digit(text[2]) & (hours < 24) & (minutes < 60)
    return np.where(text[0] == _DASH, -distance, distance), size, are_zones


def _strip(messages: pa.Array, skipped: Longs) -> pa.Array:
    """The messages without their first bytes; one copy, or none when there is nothing to strip."""
    if not skipped.any():
        return messages
    offsets = offsets_of(messages)
    # Seen as twice as many values, what is skipped and what is kept take turns.
    turns = np.empty(2 * len(messages) + 1, offsets.dtype)
    turns[::2] = offsets
    turns[1::2] = offsets[:-1] + skipped
    buffers = [None, pa.py_buffer(turns), messages.buffers()[2]]
    pairs = pa.Array.from_buffers(messages.type, len(turns) - 1, buffers)
    return pairs.take(pa.array(np.arange(1, len(turns), 2)))


def _parse_one_by_one(messages: pa.Array, rows: Longs, times: Longs, had_time: Mask, lines: pa.Array) -> pa.Array:
    """Let the rule decide about some rows: set their times in place, return the lines with theirs put in."""
    parsed = [
        parse_message(message, int(times[row]))
        for row, message in zip(rows, messages.take(pa.array(rows)).to_pylist(), strict=True)
    ]
    for row, (time, _) in zip(rows, parsed, strict=True):
        if time is not None:
            times[row], had_time[row] = time, True
    is_row = np.zeros(len(messages), bool)
    is_row[rows] = True
    return pc.replace_with_mask(lines, pa.array(is_row), pa.array([line for _, line in parsed], lines.type))
