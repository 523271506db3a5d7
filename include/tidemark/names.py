"""Names of things, and the one place where they are validated: a name that passes cannot leave its root."""

import re
import unicodedata
from calendar import timegm
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from tidemark.errors import WrongUse

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
_LONGEST_PART = 255
_LONGEST_TOLD = 100

_STREAM = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
_CLUSTER = re.compile(r"[a-z0-9][a-z0-9_]{0,62}", re.ASCII)
_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}", re.ASCII)
_SHARD = re.compile(r"([0-9]{4})-([0-9]{1,6})", re.ASCII)
# Our own short form is UTC; an ISO time has to say so.
_HOUR = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2})(?::00(?::00)?(?:Z|\+00:00))?", re.ASCII)


def valid_stream(name: str) -> str:
    return _valid(_STREAM, "stream", name, "a-z, 0-9, _ and -, at most 63, the first a letter or digit")


def valid_cluster(name: str) -> str:
    return _valid(_CLUSTER, "cluster", name, "a-z, 0-9 and _, at most 63, the first a letter or digit")


def valid_topic(name: str) -> str:
    return _valid(_TOPIC, "topic", name, "a-z, A-Z, 0-9, '.', '_' and '-', at most 249")


def _valid(pattern: re.Pattern[str], kind: str, name: str, wanted: str) -> str:
    if not pattern.fullmatch(name):
        raise WrongUse(f"Cannot use {told(name)} as a {kind}'s name: wanted {wanted}")
    return name


def told(name: str) -> str:
    """A name that may be a trick, in one short line: look-alikes and control characters are seen as what they are."""
    return ascii(name if len(name) <= _LONGEST_TOLD else f"{name[:_LONGEST_TOLD]}…")


def fault_of_part(part: str) -> str | None:
    """Why a part of a path could leave its root, or HDFS cannot name it. None: it is sound."""
    if part in ("", ".", ".."):
        return f"found the part {part!r}"
    alike = part if part.isascii() else unicodedata.normalize("NFKC", part)
    if alike in (".", "..") or "/" in alike:
        return f"found characters that some systems read as '.' or '/' in {told(part)}"
    if ":" in part or any(unicodedata.category(character) in ("Cc", "Cs") for character in part):
        return f"found a colon, a control character or half a character in {told(part)}"
    if len(part.encode()) > _LONGEST_PART:
        return f"found a name of {len(part.encode())} bytes, the longest allowed has {_LONGEST_PART}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Who asks for work: a later try of the same task takes the lease of an earlier one at once.

    After `timeout_s`, counted from its start, it holds nothing any more.
    """

    name: str
    attempt: int
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """Partition `partition` of timeline `timeline`, written `0001-3`."""

    timeline: int
    partition: int

    def __str__(self) -> str:
        return f"{self.timeline:04d}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> "Shard":
        match = _SHARD.fullmatch(text)
        if not match:
            raise WrongUse(f"Cannot read {text!r} as a shard: wanted a timeline and a partition such as 0001-3")
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """The half-open span of time, UTC, that one run is asked for."""

    start_ms: int
    end_ms: int

    def __post_init__(self) -> None:
        if self.start_ms % 60_000 or self.end_ms % 60_000 or self.start_ms >= self.end_ms:
            raise WrongUse(f"Cannot use {self} as an interval: wanted whole minutes, the start before the end")

    @property
    def shift(self) -> str:
        """The shift's id: the interval's start, `20261115T0700`."""
        return moment(self.start_ms).strftime("%Y%m%dT%H%M")

    def __str__(self) -> str:
        return f"{isoformat(self.start_ms)}/{isoformat(self.end_ms)}"


@dataclass(frozen=True, slots=True, order=True)
class Hour:
    """An hour of event time, UTC, written `2026-11-15T07`."""

    start_ms: int

    def __post_init__(self) -> None:
        if self.start_ms % HOUR_MS:
            raise WrongUse(f"Cannot use {isoformat(self.start_ms)} as an hour: it is not a full one")

    @classmethod
    def parse(cls, text: str) -> "Hour":
        match = _HOUR.fullmatch(text)
        try:
            found = f"{match[1]}T{match[2]}+0000" if match else ""
            return cls(milliseconds(datetime.strptime(found, "%Y-%m-%dT%H%z")))
        except ValueError:
            raise WrongUse(f"Cannot read {text!r} as an hour: wanted UTC, such as 2026-11-15T07") from None

    @classmethod
    def of(cls, time_ms: int) -> "Hour":
        return cls(time_ms - time_ms % HOUR_MS)

    @property
    def end_ms(self) -> int:
        return self.start_ms + HOUR_MS

    @property
    def day(self) -> str:
        return moment(self.start_ms).strftime("%Y-%m-%d")

    @property
    def hh(self) -> str:
        return moment(self.start_ms).strftime("%H")

    def __str__(self) -> str:
        return f"{self.day}T{self.hh}"


@dataclass(frozen=True, slots=True, order=True)
class Day:
    """A day of event time, UTC, written `2026-11-15`."""

    name: str

    def __post_init__(self) -> None:
        try:
            found = str(date.fromisoformat(self.name))
        except ValueError:
            found = None
        if found != self.name:
            raise WrongUse(f"Cannot read {self.name!r} as a day: wanted UTC, such as 2026-11-15")

    def __str__(self) -> str:
        return self.name


def parse_subject(text: str) -> Hour | Day:
    """What a flag may be of."""
    return Hour.parse(text) if "T" in text else Day(text)


def hours_of_day(day: str) -> tuple[Hour, ...]:
    first = Hour.parse(f"{day}T00").start_ms
    return tuple(Hour(first + index * HOUR_MS) for index in range(24))


def moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms)


def milliseconds(time: datetime) -> int:
    """Refuses a naive time: nobody knows which hour it means."""
    if time.tzinfo is None:
        raise WrongUse(f"Cannot use {time.isoformat()}: it has no time zone; wanted an aware time such as …+00:00")
    return timegm(time.utctimetuple()) * 1000 + time.microsecond // 1000


def isoformat(time_ms: int) -> str:
    return moment(time_ms).isoformat(timespec="milliseconds" if time_ms % 1000 else "seconds").replace("+00:00", "Z")


def duration_ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
