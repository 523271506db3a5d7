"""Every path in storage, relative to the stream's root, is built here."""

import re

from tidemark.errors import WrongUse
from tidemark.names import Hour, Shard

HOURS_FLAG = "_READY"
MANIFESTS = "_manifests"
EXPIRED = "_expired"
WORK = "_tmp"

_FLAG = re.compile(r"_READY(?:\.([0-9]+))?", re.ASCII)
_SEGMENT = re.compile(r"([0-9-]{10})/_index/([0-9]{2})-([0-9]{4,})\.jsonl", re.ASCII)


def boom_name(shift: str, shard: Shard, split: int) -> str:
    return f"{shift}-{shard}-{split:03d}.bm"


def bad_name(shift: str, shard: Shard, split: int) -> str:
    return f"{shift}-{shard}-{split:03d}.jsonl"


def hour_folder(hour: Hour) -> str:
    return f"{hour.day}/{hour.hh}"


def incoming_folder(hour: Hour) -> str:
    return f"{hour_folder(hour)}/_incoming"


def incoming(hour: Hour, name: str) -> str:
    return f"{incoming_folder(hour)}/{name}"


def skewed(name: str) -> str:
    return f"_skewed/{name}"


def bad(name: str) -> str:
    return f"_bad/{name}"


def set_aside(path: str) -> str:
    """Where a file goes that is not what its writer wrote; the reason stands beside it."""
    return f"_bad/{path}"


def reason_of(path: str) -> str:
    return f"{path}.json"


def shift_of_boom(path: str) -> str | None:
    """The id of the shift that wrote a file, by its name; None when it is no name of ours."""
    shift, *rest = path.rsplit("/", 1)[-1].rsplit("-", 3)
    return shift if len(rest) == 3 else None


def archived_name(hour: Hour, archive: int, target: int) -> str:
    return f"{hour.day}T{hour.hh}-{archive:04d}-{target:03d}.bm"


def archived(hour: Hour, name: str) -> str:
    return f"{hour_folder(hour)}/{name}"


def expired(day: str) -> str:
    return f"{EXPIRED}/{day}.json"


def index_folder(day: str) -> str:
    return f"{day}/_index"


def index_segment(hour: Hour, archive: int) -> str:
    return f"{hour.day}/_index/{hour.hh}-{archive:04d}.jsonl"


def manifest(number: int, shift: str) -> str:
    return f"{MANIFESTS}/{number:08d}-{shift}.json"


def number_of_manifest(path: str) -> int:
    return int(path.removeprefix(f"{MANIFESTS}/").partition("-")[0])


def shift_of_manifest(path: str) -> str:
    return path.partition("-")[2].removesuffix(".json")


def blocks(number: int, shift: str) -> str:
    return f"{MANIFESTS}/{number:08d}-{shift}.blocks"


def work_of_shift(shift: str) -> str:
    return f"_tmp/shift-{shift}"


def work_of_archive(hour: Hour, archive: int) -> str:
    return f"_tmp/archive-{hour}-{archive:04d}"


def work_of_flag(subject: str, revision: int) -> str:
    return f"_tmp/flag-{subject}-{revision:04d}"


def is_work_of_day(path: str, day: str) -> bool:
    """Archives and flags of its hours, and its own flags."""
    return path.startswith((f"{WORK}/archive-{day}T", f"{WORK}/flag-{day}T", f"{WORK}/flag-{day}-"))


def hour_flag(hour: Hour, revision: int) -> str:
    return f"{hour_folder(hour)}/{_flag_name(revision)}"


def day_flag(day: str, revision: int) -> str:
    return f"{day}/{_flag_name(revision)}"


def revision_of_flag(path: str) -> int | None:
    """None for a file that is no flag."""
    match = _FLAG.fullmatch(path.rsplit("/", 1)[-1])
    return (int(match[1]) if match[1] else 1) if match else None


def archive_of_segment(path: str) -> tuple[Hour, int]:
    match = _SEGMENT.fullmatch(path)
    if not match:
        raise WrongUse(f"Cannot read {path!r} as the name of an index segment")
    return Hour.parse(f"{match[1]}T{match[2]}"), int(match[3])


def _flag_name(revision: int) -> str:
    """Revision 1 is `_READY`, what a simple reader looks for; later ones stand beside it."""
    return HOURS_FLAG if revision == 1 else f"{HOURS_FLAG}.{revision}"
