"""The memory of Spark's Python workers, by the kernel's own high-water mark."""

import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)
_RESET_PEAK = "5"
_EVERY_S = 0.25


class WorkerPeak:
    """As a context manager: `megabytes` is the most that any one worker below this process held meanwhile.

    Pages that a worker shares with the daemon that forked it count in full.
    """

    def __init__(self) -> None:
        self.megabytes = 0.0
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="worker-peak", daemon=True)

    def __enter__(self) -> Self:
        for worker in _workers():
            with suppress(OSError):
                Path(f"/proc/{worker.pid}/clear_refs").write_text(_RESET_PEAK)
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watcher.join()
        self._look()

    def _watch(self) -> None:
        while not self._over.wait(_EVERY_S):
            self._look()

    def _look(self) -> None:
        for worker in _workers():
            with suppress(OSError):
                match = _PEAK.search(Path(f"/proc/{worker.pid}/status").read_text())
                self.megabytes = max(self.megabytes, int(match[1]) / 1024 if match else 0)


def _workers() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "pyspark.daemon" in process.cmdline():
                found.append(process)
    return found
