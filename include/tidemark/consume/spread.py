"""Which task reads which splits."""

import heapq
from collections.abc import Sequence

from tidemark.consume.results import Split


def spread(splits: Sequence[Split], tasks: int) -> list[list[Split]]:
    """Every split to one of at most so many tasks, the largest first and each to the task that has least to read.

    A task reads at most a split more than any other, and there are no idle ones.
    """
    loads = [(0, number) for number in range(min(tasks, len(splits)))]
    shares: list[list[Split]] = [[] for _ in loads]
    for split in sorted(splits, key=lambda found: (found.start - found.end, found.order)):
        load, number = loads[0]
        shares[number].append(split)
        heapq.heapreplace(loads, (load + split.end - split.start, number))
    return shares
