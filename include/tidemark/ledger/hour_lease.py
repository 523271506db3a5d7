"""The leases of hours: archive and publish, one worker an hour. They stand in the hours' own nodes.

Every write of a holder compares and sets the node that has its lease in it, so that a zombie, whose epoch is gone,
writes nothing, however late it wakes up.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Self

from tidemark.errors import CommitFailed, CommitStateUnknown, Fenced, TidemarkError
from tidemark.failpoints import reach
from tidemark.ledger import paths
from tidemark.ledger.lease import EXPIRY_S, WorkerNode
from tidemark.ledger.records import HourRecord, LeaseRecord
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import ask
from tidemark.names import Hour


class HourLeases:
    """The hours that this process holds. Use as a context manager: they are renewed meanwhile, and given back then."""

    def __init__(
        self,
        ledger: StreamLedger,
        worker: WorkerNode,
        *,
        expiry_s: float = EXPIRY_S,
        renew_for_s: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._worker = worker
        self._expiry_s = expiry_s
        self._monotonic = monotonic
        self._ends = None if renew_for_s is None else monotonic() + renew_for_s
        self._seen: dict[Hour, tuple[tuple[int, int], float]] = {}
        self._epochs: dict[Hour, int] = {}
        self._renewed: dict[Hour, float] = {}
        self._stop = threading.Event()
        self._renewer = threading.Thread(target=self._renew_until_stopped, name="hour-leases", daemon=True)

    def __enter__(self) -> Self:
        self._renewer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._renewer.join(self._expiry_s)
        for hour in list(self._epochs):
            with suppress(TidemarkError):
                self.release(hour)

    def take(self, hour: Hour) -> bool:
        """False when somebody else works on the hour: take another one instead."""
        if self._is_over():
            raise Fenced(f"Cannot take the lease of {hour}: the task's time-out is over")
        node = self._ledger.hour(hour)
        held = node.value.lease or LeaseRecord()
        if not self._is_free(hour, held):
            return False
        mine = LeaseRecord(
            owner=self._worker.name, task=self._worker.task, attempt=self._worker.attempt, epoch=held.epoch + 1
        )
        began = self._monotonic()
        reach("archive.before_claim")
        try:
            self._ledger.save_hour("take", hour, node, replace(node.value, lease=mine))
        except CommitFailed:
            return False
        except CommitStateUnknown:
            if self._ledger.hour(hour).value.lease != mine:
                raise
        self._renewed[hour], self._epochs[hour] = began, mine.epoch
        reach("archive.after_claim")
        return True

    def epoch(self, hour: Hour) -> int:
        self.ensure_held(hour)
        return self._epochs[hour]

    def ensure_held(self, hour: Hour) -> None:
        """What a holder asks before it writes where no compare-and-set protects: raise Fenced unless it is held."""
        renewed = self._renewed.get(hour)
        if renewed is None or self._is_over() or self._monotonic() - renewed > self._expiry_s * 5 / 6:
            raise Fenced(f"Cannot go on with {self._ledger.stream}/{hour}: its lease is lost or could not be renewed")

    def confirm(self, hour: Hour) -> None:
        """The same, but ask ZooKeeper and not our memory."""
        self.update("go on with", hour, lambda record: record)
        self.ensure_held(hour)

    def update(self, act: str, hour: Hour, change: Callable[[HourRecord], HourRecord]) -> HourRecord:
        """Write the hour's record as its holder; others may write it, too (commits, flags), so read it again then."""
        while True:
            node = self._ledger.hour(hour)
            lease = node.value.lease
            if lease is None or (lease.owner, lease.epoch) != (self._worker.name, self._epochs.get(hour)):
                self._renewed.pop(hour, None)
                holder = lease.owner if lease and lease.owner else "nobody"
                raise Fenced(f"Cannot {act} {self._ledger.stream}/{hour}: its lease is with {holder}")
            changed = change(node.value)
            if changed == node.value:
                return changed
            try:
                self._ledger.save_hour(act, hour, node, changed)
            except CommitFailed:
                continue
            except CommitStateUnknown:
                if self._ledger.hour(hour).value != changed:
                    raise
            return changed

    def release(self, hour: Hour) -> None:
        """Nothing happens when it is not held any more."""
        try:
            self.update("release", hour, _freed)
        except Fenced:
            pass
        finally:
            self._epochs.pop(hour, None)
            self._renewed.pop(hour, None)

    def _is_free(self, hour: Hour, lease: LeaseRecord) -> bool:
        if lease.owner is None or not ask(self._ledger.client.exists_async, paths.worker(lease.owner)):
            return True
        if lease.task == self._worker.task and lease.attempt < self._worker.attempt:
            return True
        key, now = (lease.epoch, lease.count), self._monotonic()
        if hour not in self._seen or self._seen[hour][0] != key:
            self._seen[hour] = (key, now)
        return now - self._seen[hour][1] > self._expiry_s

    def _is_over(self) -> bool:
        return self._ends is not None and self._monotonic() >= self._ends

    def _renew_until_stopped(self) -> None:
        """One that cannot be renewed is found by `ensure_held`: its time is not moved on."""
        while not self._stop.wait(self._expiry_s / 3):
            if self._is_over():
                return
            for hour in list(self._renewed):
                began = self._monotonic()
                with suppress(TidemarkError):
                    self.update("renew", hour, _renewed)
                    if hour in self._renewed:
                        self._renewed[hour] = began


def _renewed(record: HourRecord) -> HourRecord:
    assert record.lease is not None
    return replace(record, lease=replace(record.lease, count=record.lease.count + 1))


def _freed(record: HourRecord) -> HourRecord:
    assert record.lease is not None
    return replace(record, lease=replace(record.lease, owner=None))
