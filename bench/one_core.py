"""What is measured alone: on one core, by CPU time, so that what else the machine does is not counted."""

import os
import statistics
import time
from collections.abc import Callable

import pyarrow as pa

_REPEATS = 3


def keep_to_one_core() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)


def cpu_seconds(act: Callable[[], object], times: int) -> float:
    """CPU time for one time, the median of some repeats of so many."""
    found = []
    for _ in range(_REPEATS):
        begin = time.process_time()
        for _ in range(times):
            act()
        found.append((time.process_time() - begin) / times)
    return statistics.median(found)
