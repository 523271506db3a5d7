"""Lines to measure with: made ones, the same for the same seed, and those that this machine's own logs hold.

Made lines are put together from tables of words by Arrow, so that millions of them cost seconds. Five kinds of line
are mixed as on a machine that runs a shop: requests, services, syslog, JSON, stack traces; about 145 bytes each.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.names import HOUR_MS, Hour

HOUR = Hour.parse("2026-11-10T22")
SEED = 4
_CHUNK_LINES = 100_000
_REAL_LOGS = ("/var/log/dpkg.log", "/var/log/apt/term.log", "/var/log/apt/history.log", "/var/log/alternatives.log")
# Below this a file is mostly header, and its size says little.
_LEAST_BYTES = 30_000
# How dense the lines of a real log are laid in time.
_REAL_LINE_MS = 7

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Lines:
    times: pa.Int64Array
    messages: pa.LargeBinaryArray

    def __len__(self) -> int:
        return len(self.times)

    @property
    def size(self) -> int:
        return int(pc.sum(pc.binary_length(self.messages)).as_py() or 0)


def made_lines(count: int, seed: int = SEED) -> Iterator[Lines]:
    """In order of time, spread evenly over the hour."""
    for number, first in enumerate(range(0, count, _CHUNK_LINES)):
        last = min(first + _CHUNK_LINES, count)
        chance = np.random.default_rng([seed, number])
        span = (HOUR_MS * first // count, HOUR_MS * last // count)
        yield _make(chance, np.sort(chance.integers(*span, last - first)))


def real_logs(service_logs: Path) -> dict[str, Lines]:
    """What the machine itself has written, the services of the stack included."""
    files = [*map(Path, _REAL_LOGS), *sorted(service_logs.glob("*.log"))]
    found = {file.name: _read_log(file) for file in files if file.is_file() and file.stat().st_size >= _LEAST_BYTES}
    return {name: lines for name, lines in found.items() if len(lines)}


def _read_log(file: Path) -> Lines:
    messages = file.read_bytes().splitlines()
    times = HOUR.start_ms + np.arange(len(messages)) * _REAL_LINE_MS
    return Lines(pa.array(times), pa.array(messages, pa.large_binary()))


class _Moments:
    """The times of some lines, and their texts in parts."""

    def __init__(self, times: Longs) -> None:
        self.clock = _CLOCKS.take(pa.array(times // 1000))
        self.ms = _MILLISECONDS.take(pa.array(times % 1000))

    def __len__(self) -> int:
        return len(self.clock)


def _make(chance: np.random.Generator, times: Longs) -> Lines:
    kinds = chance.choice(len(_KINDS), len(times), p=[share for share, _ in _KINDS])
    parts = [make(chance, _Moments(times[kinds == kind])) for kind, (_, make) in enumerate(_KINDS)]
    # Made kind by kind, then brought back into the order of time.
    order = np.empty(len(times), np.int64)
    order[np.argsort(kinds, kind="stable")] = np.arange(len(times))
    return Lines(pa.array(HOUR.start_ms + times), pa.concat_arrays(parts).take(pa.array(order)))


def _make_request(chance: np.random.Generator, at: _Moments) -> pa.LargeBinaryArray:
    n = len(at)
    return _join(
        *_address(chance, n), b" - ", _pick(chance, _USERS, n), b" [10/Nov/2026:22:", at.clock, b' +0000] "',
        _pick(chance, _METHODS, n), b" ", _pick(chance, _PATHS, n), _number(chance, n, 10_000), b' HTTP/1.1" ',
        _pick(chance, _STATUSES, n), b" ", _number(chance, n, 60_000), b' "-" "', _pick(chance, _AGENTS, n), b'"',
    )  # fmt: skip


def _make_service(chance: np.random.Generator, at: _Moments) -> pa.LargeBinaryArray:
    n = len(at)
    return _join(
        b"2026-11-10T22:", at.clock, b".", at.ms, b"Z ", _pick(chance, _LEVELS, n), b" [worker-",
        _number(chance, n, 32), b"] ", _pick(chance, _CLASSES, n), b" - ", _pick(chance, _EVENTS, n), b" order=",
        _number(chance, n, 1_000_000), b" customer=", _number(chance, n, 50_000), b" took ", _number(chance, n, 900),
        b" ms trace=", *_hex(chance, n, 4),
    )  # fmt: skip


def _make_syslog(chance: np.random.Generator, at: _Moments) -> pa.LargeBinaryArray:
    n = len(at)
    return _join(
        b"<", _number(chance, n, 191), b">Nov 10 22:", at.clock, b" ", _pick(chance, _HOSTS, n), b" sshd[",
        _number(chance, n, 32_768), b"]: ", _pick(chance, _LOGINS, n), b" for ", _pick(chance, _USERS, n), b" from ",
        *_address(chance, n), b" port ", _number(chance, n, 65_536), b" ssh2: ED25519 SHA256:", *_hex(chance, n, 3),
    )  # fmt: skip


def _make_json(chance: np.random.Generator, at: _Moments) -> pa.LargeBinaryArray:
    n = len(at)
    return _join(
        b'{"ts":"2026-11-10T22:', at.clock, b".", at.ms, b'Z","level":"', _pick(chance, _LEVELS, n), b'","host":"',
        _pick(chance, _HOSTS, n), b'","msg":"', _pick(chance, _EVENTS, n), b'","user":', _number(chance, n, 50_000),
        b',"ms":', _number(chance, n, 900), b',"span":"', *_hex(chance, n, 2), b'"}',
    )  # fmt: skip


def _make_trace(chance: np.random.Generator, at: _Moments) -> pa.LargeBinaryArray:
    n = len(at)
    return _join(
        b"\tat ", _pick(chance, _CLASSES, n), b".", _pick(chance, _CALLS, n), b"(", _pick(chance, _CLASSES, n),
        b".java:", _number(chance, n, 900), b") ~[shop-2.14.jar:?]",
    )  # fmt: skip


_KINDS: Sequence[tuple[float, Callable[[np.random.Generator, _Moments], pa.LargeBinaryArray]]] = (
    (0.30, _make_request),
    (0.35, _make_service),
    (0.15, _make_syslog),
    (0.15, _make_json),
    (0.05, _make_trace),
)


def _pick(chance: np.random.Generator, words: pa.LargeBinaryArray, count: int) -> pa.LargeBinaryArray:
    """Few words are frequent and many are rare."""
    return words.take(pa.array((chance.random(count) ** 3 * len(words)).astype(np.int64)))


def _number(chance: np.random.Generator, count: int, below: int) -> pa.Array:
    return pa.array((chance.random(count) ** 2 * below).astype(np.int64)).cast(pa.string()).cast(pa.large_binary())


def _address(chance: np.random.Generator, count: int) -> tuple[pa.Array | bytes, ...]:
    return (b"10.", _number(chance, count, 16), b".", _number(chance, count, 256), b".", _number(chance, count, 256))


def _hex(chance: np.random.Generator, count: int, groups: int) -> list[pa.Array]:
    return [_HEX.take(pa.array(chance.integers(0, len(_HEX), count))) for _ in range(groups)]


def _join(*parts: pa.Array | bytes) -> pa.LargeBinaryArray:
    scalars = (pa.scalar(part, pa.large_binary()) if isinstance(part, bytes) else part for part in parts)
    return pc.binary_join_element_wise(*scalars, pa.scalar(b"", pa.large_binary()))


def _words(words: Sequence[str]) -> pa.LargeBinaryArray:
    return pa.array([word.encode() for word in words], pa.large_binary())


_CLOCKS = _words([f"{second // 60:02d}:{second % 60:02d}" for second in range(3600)])
_MILLISECONDS = _words([f"{ms:03d}" for ms in range(1000)])
_HEX = _words([f"{number:04x}" for number in range(1 << 16)])
_METHODS = _words(["GET", "GET", "GET", "POST", "HEAD", "PUT"])
_STATUSES = _words(["200", "304", "404", "302", "500", "503"])
_LEVELS = _words(["INFO", "DEBUG", "WARN", "ERROR"])
_HOSTS = _words([f"{role}-{number:02d}" for number in range(12) for role in ("web", "cart", "search", "db")])
_USERS = _words(["-", *(f"{name}{number}" for number in range(40) for name in ("anna", "bo", "chen", "deploy", "eve"))])
_LOGINS = _words(["Accepted publickey", "Failed password", "Connection closed", "Invalid user", "Disconnected"])
_CALLS = _words(["apply", "lambda$run$3", "doFilter", "invoke", "handle", "price", "save", "accept", "<init>"])
_CLASSES = _words(
    [
        f"com.example.shop.{area}.{role}{kind}"
        for kind in ("Service", "Repository", "Controller")
        for role in ("Order", "Price", "Stock", "Customer", "Session", "Mail")
        for area in ("core", "cart", "search", "payment")
    ]
)
_EVENTS = _words(
    [
        f"{what} {how}"
        for how in (
            "accepted",
            "priced",
            "rejected: stock too low",
            "retried after a timeout",
            "stored",
            "sent to queue",
        )
        for what in ("order", "payment", "cart", "session", "mail", "invoice", "item")
    ]
)
_PATHS = _words(
    [
        f"{path}{query}"
        for query in ("?page=", "?id=", "/reviews?from=", "?ref=mail&campaign=")
        for path in ("/", "/search", "/cart", "/cart/checkout", "/item", "/account/orders", "/static/app.js", "/help")
    ]
)
_AGENTS = _words(
    [
        "Mozilla/5.0 (X11; Linux x86_64)",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5)",
        "okhttp/4.12.0",
        "curl/8.5.0",
        "Googlebot/2.1 (+http://www.google.com/bot.html)",
        "kube-probe/1.29",
    ]
)
