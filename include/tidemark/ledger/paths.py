"""Every path in ZooKeeper, below the chroot, is built here."""

from tidemark.names import Hour

WORKERS = "/workers"
STREAMS = "/streams"


def worker(name: str) -> str:
    return f"{WORKERS}/{name}"


def stream(stream: str) -> str:
    return f"/streams/{stream}"


def head(stream: str) -> str:
    return f"/streams/{stream}/head"


def lease(stream: str) -> str:
    return f"/streams/{stream}/lease"


def wanted(stream: str) -> str:
    """Whoever asks the holder of the lease for it."""
    return f"/streams/{stream}/wanted"


def epochs(stream: str) -> str:
    return f"/streams/{stream}/epoch"


def epoch(stream: str, epoch: int) -> str:
    return f"/streams/{stream}/epoch/{epoch}"


def timelines(stream: str) -> str:
    return f"/streams/{stream}/timelines"


def timeline(stream: str, order: int) -> str:
    return f"/streams/{stream}/timelines/{order:04d}"


def positions(stream: str) -> str:
    return f"/streams/{stream}/positions"


def shifts(stream: str) -> str:
    return f"/streams/{stream}/shifts"


def shift(stream: str, shift: str) -> str:
    return f"/streams/{stream}/shifts/{shift}"


def hours(stream: str) -> str:
    return f"/streams/{stream}/hours"


def hours_of(stream: str, day: str) -> str:
    return f"/streams/{stream}/hours/{day}"


def hour(stream: str, hour: Hour) -> str:
    return f"/streams/{stream}/hours/{hour.day}/{hour.hh}"


def retention(stream: str) -> str:
    return f"/streams/{stream}/retention"


def open_days(stream: str) -> str:
    return f"/streams/{stream}/open"


def open_day(stream: str, day: str) -> str:
    return f"/streams/{stream}/open/{day}"


def days(stream: str) -> str:
    return f"/streams/{stream}/days"


def day(stream: str, day: str) -> str:
    return f"/streams/{stream}/days/{day}"
