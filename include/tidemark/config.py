"""The streams, as configured in `include/config/streams.yaml`."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from tidemark.environment import kafka_connection
from tidemark.errors import WrongUse
from tidemark.names import fault_of_part, told, valid_cluster, valid_stream, valid_topic

_DURATION = re.compile(r"([0-9]{1,6})([smhd])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_SIZE = re.compile(r"([0-9]{1,6})([kMG]B)", re.ASCII)
_SIZES = {"kB": 10**3, "MB": 10**6, "GB": 10**9}
_MODE = re.compile(r"0?[0-7]{3}", re.ASCII)
_ROOT = re.compile(r"(hdfs|file):///([^\s\x00]+)")


def _parse_duration(value: object) -> timedelta:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise ValueError("wanted a number and a unit s, m, h or d, such as 5m")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def parse_duration(text: str) -> timedelta:
    """As in the configuration. Raise WrongUse for anything else."""
    try:
        return _parse_duration(text)
    except ValueError as error:
        raise WrongUse(f"Cannot read {text!r} as a duration: {error}") from None


def _parse_size(value: object) -> int:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise ValueError("wanted a number and a unit kB, MB or GB, such as 256MB")
    return int(match[1]) * _SIZES[match[2]]


def _parse_root(value: str) -> str:
    match = _ROOT.fullmatch(value.rstrip("/"))
    faults = [fault for part in match[2].split("/") if (fault := fault_of_part(part))] if match else [""]
    if faults:
        raise ValueError(f"{faults[0]}; wanted hdfs:///path or file:///path, without '..'".removeprefix("; "))
    return value.rstrip("/")


def _parse_mode(value: object) -> int:
    """Text only: YAML reads 0640 as an octal number and 640 as a decimal one."""
    if not isinstance(value, str) or not _MODE.fullmatch(value):
        raise ValueError('wanted octal digits in quotes, such as "0640"')
    return int(value, 8)


def _refused_as_value_error(check: Any) -> Any:
    def validate(value: str) -> str:
        try:
            return str(check(value))
        except WrongUse as error:
            raise ValueError(str(error)) from error

    return validate


def _parse_start(value: object) -> object:
    if value in ("earliest", "latest"):
        return value
    time = value if isinstance(value, datetime) else None
    if isinstance(value, str):
        with suppress(ValueError):
            time = datetime.fromisoformat(value)
    if time is None or time.tzinfo is None:
        raise ValueError("wanted earliest, latest or a time with its zone, such as 2026-11-15T07:00:00Z")
    return time


Duration = Annotated[timedelta, BeforeValidator(_parse_duration)]
Start = Annotated[Literal["earliest", "latest"] | datetime, BeforeValidator(_parse_start)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Skew(_Strict):
    """How far a line's time may lie before the lowest watermark and after the time of planning."""

    past: Duration = timedelta(days=7)
    future: Duration = timedelta(hours=1)


class Files(_Strict):
    """What the stream's files get; None leaves it to the file system."""

    owner: Annotated[str, Field(min_length=1)] | None = None
    group: Annotated[str, Field(min_length=1)] | None = None
    mode: Annotated[int, BeforeValidator(_parse_mode)] | None = None
    replication: Annotated[int, Field(ge=1, le=512)] | None = None


class Archive(_Strict):
    """How large archived files are; `rollover`: join files of an hour that is still open when they waited so long."""

    target_size: Annotated[int, BeforeValidator(_parse_size), Field(ge=1)] = 256_000_000
    rollover: Duration | None = None


class Stream(_Strict):
    name: Annotated[str, AfterValidator(_refused_as_value_error(valid_stream))]
    cluster: Annotated[str, AfterValidator(_refused_as_value_error(valid_cluster))]
    topic: Annotated[str, AfterValidator(_refused_as_value_error(valid_topic))]
    root: Annotated[str, AfterValidator(_parse_root)]
    owner: Annotated[str, Field(min_length=1)]
    start: Start = "earliest"
    offset_reset: Literal["fail", "earliest", "latest"] = "fail"
    max_records: Annotated[int, Field(ge=1)] = 50_000_000
    grace: Duration = timedelta(minutes=5)
    max_clock_skew: Duration = timedelta(seconds=30)
    ready_within: Duration | None = None
    skew: Skew = Skew()
    timestamp: Literal["kafka", "message"] = "kafka"
    compression: Literal["small", "fast"] = "small"
    files: Files = Files()
    every: Duration = timedelta(hours=1)
    archive: Archive = Archive()
    retain: Duration | None = None

    @model_validator(mode="after")
    def _late_lines_come_before_their_day_is_removed(self) -> "Stream":
        if self.retain is not None and self.retain <= self.skew.past:
            raise ValueError(f"retain {self.retain} must be longer than skew.past {self.skew.past}")
        return self

    @model_validator(mode="after")
    def _clock_skew_fits_into_grace(self) -> "Stream":
        if self.max_clock_skew >= self.grace:
            raise ValueError(f"max_clock_skew {self.max_clock_skew} must be below grace {self.grace}")
        return self

    @model_validator(mode="after")
    def _hour_is_cut_into_whole_shifts(self) -> "Stream":
        if self.every < timedelta(minutes=1) or self.every % timedelta(minutes=1) or timedelta(hours=1) % self.every:
            raise ValueError(f"every {self.every} must be whole minutes of which an hour has a whole number")
        return self

    @model_validator(mode="after")
    def _grace_fits_into_ready_within(self) -> "Stream":
        if self.ready_within is not None and self.ready_within <= self.grace:
            raise ValueError(f"ready_within {self.ready_within} must be above grace {self.grace}")
        return self

    @property
    def minutes(self) -> int:
        """From one run to the next."""
        return self.every // timedelta(minutes=1)

    @property
    def kafka_connection(self) -> str:
        return kafka_connection(self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The streams that are sound, and one line for each thing that is not."""

    streams: Mapping[str, Stream]
    errors: tuple[str, ...]


def load_streams(path: Path) -> Streams:
    """A bad stream becomes an error and leaves the others alone; a file that cannot be read leaves none."""
    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        return Streams(streams={}, errors=(f"{path}: cannot be read: {error}",))
    entries = document.get("streams") if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        return Streams(streams={}, errors=(f"{path}: wanted a mapping 'streams' of names to settings",))
    streams: dict[str, Stream] = {}
    errors: list[str] = []
    for name, settings in entries.items():
        try:
            streams[str(name)] = Stream.model_validate({**_mapping_of(settings), "name": str(name)})
        except ValidationError as error:
            errors += [_explain(path, _shown(str(name)), detail) for detail in error.errors()]
        except ValueError as error:
            errors.append(f"{path}: stream {_shown(str(name))}: {error}")
    roots = {name: stream.root for name, stream in streams.items()}
    for name, other in _sharing(roots).items():
        errors.append(
            f"{path}: stream {name}: field root: found {roots[name]!r}: stream {other} has "
            f"{roots[other]!r}; wanted a root of its own, neither above nor below another's"
        )
        del streams[name]
    return Streams(streams=streams, errors=tuple(errors))


def _sharing(roots: Mapping[str, str]) -> dict[str, str]:
    """Streams whose roots are one or lie in one another, each with another such: they would write the same names."""
    sharing: dict[str, str] = {}
    above = ""
    for name in sorted(roots, key=lambda name: f"{roots[name]}/"):
        if above and f"{roots[name]}/".startswith(f"{roots[above]}/"):
            sharing.setdefault(above, name)
            sharing[name] = above
        else:
            above = name
    return sharing


def load_stream(path: Path, name: str) -> Stream:
    loaded = load_streams(path)
    if name in loaded.streams:
        return loaded.streams[name]
    mine = [error for error in loaded.errors if f"stream {name}:" in error]
    if mine:
        raise WrongUse(mine[0])
    known = ", ".join(sorted(loaded.streams)) or "none"
    raise WrongUse(f"Cannot find the stream {told(name)} in {path}: it has {known}")


def _shown(name: str) -> str:
    return told(name)[1:-1]


def _mapping_of(settings: object) -> Mapping[str, Any]:
    if not isinstance(settings, dict):
        raise ValueError(f"found {settings!r}; wanted a mapping of settings")  # noqa: TRY004 - told like the others
    return settings


def _explain(path: Path, stream: str, detail: Mapping[str, Any]) -> str:
    field = ".".join(str(part) for part in detail["loc"]) or "settings"
    found = "nothing" if detail["type"] == "missing" else ascii(detail["input"])
    if detail["type"] == "extra_forbidden":
        allowed = f"no such field; allowed are {', '.join(_allowed_fields(detail['loc'][:-1]))}"
    else:
        allowed = str(detail["msg"]).removeprefix("Value error, ")
    return f"{path}: stream {stream}: field {field}: found {found}: {allowed}"


def _allowed_fields(parents: tuple[Any, ...]) -> list[str]:
    model: Any = Stream
    for parent in parents:
        model = model.model_fields[parent].annotation
    return sorted(set(model.model_fields) - {"name"})
