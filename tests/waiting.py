"""Wait for a state, never for a fixed time."""

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], bool], what: str, *, within_s: float = 600) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}"
        time.sleep(0.5)
