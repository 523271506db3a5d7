"""Do in this process what Spark would spread: for a repair by hand, where a cluster would be too much."""

from collections.abc import Sequence
from itertools import count

from tidemark.archive.join import (
    Joined,
    JoinOrder,
    Refused,
    RewriteOrder,
    VerifyOrder,
    fault_of,
    join_target,
    rewrite_source,
)
from tidemark.archive.plan import Source


class Here:
    def __init__(self) -> None:
        self._attempts = count()

    def join(self, orders: Sequence[JoinOrder]) -> list[Joined | Refused]:
        return [join_target(order, next(self._attempts)) for order in orders]

    def rewrite(self, orders: Sequence[RewriteOrder]) -> list[Source | Refused]:
        return [rewrite_source(order, next(self._attempts)) for order in orders]

    def verify(self, orders: Sequence[VerifyOrder]) -> list[str | None]:
        return [fault_of(order) for order in orders]
