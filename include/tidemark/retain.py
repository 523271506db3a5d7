"""Retention: whole days that are older than the stream keeps them are removed, from a list that was shown before.

What is marked EXPIRED in the ledger is published, archived and waited for no more. Then work under way goes, then the
flags, so that no reader starts, and the files last. A crash leaves days that the same token goes on with.
"""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from tidemark import layout
from tidemark.errors import AlreadyExists, TidemarkError, WrongUse
from tidemark.ledger import paths
from tidemark.ledger.hour_lease import HourLeases
from tidemark.ledger.records import DayRecord, HourRecord, HourState, Retention, dump
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import Transaction, Versioned, children, read
from tidemark.names import Day, hours_of_day
from tidemark.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class OldDay:
    """`held`: why it stays, None when it can go."""

    day: Day
    held: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retainer:
    ledger: StreamLedger
    storage: Storage

    def old_days(self, retain_ms: int, now_ms: int) -> list[OldDay]:
        """Days that ended so long before the lowest watermark, and the clock, that no late line can come for them."""
        lowest = self.ledger.positions().value.lowest_watermark_ms
        before_ms = min(now_ms, now_ms if lowest is None else lowest) - retain_ms
        days = [Day(name) for name in children(self.ledger.client, paths.hours(self.ledger.stream))]
        old = [day for day in days if hours_of_day(str(day))[-1].end_ms <= before_ms]
        return [OldDay(day=day, held=self._held(day)) for day in old if not self._is_gone(day)]

    def freeze(self, days: list[Day]) -> str:
        """Remember the list; the token that removes it. A later list replaces it."""
        names = tuple(sorted(str(day) for day in days))
        token = hashlib.sha256("\n".join((self.ledger.stream, *names)).encode()).hexdigest()[:12]
        node = self._plan()
        transaction = Transaction(self.ledger.client, f"list old days of {self.ledger.stream}")
        path = paths.retention(self.ledger.stream)
        transaction.put(path, Retention(token=token, days=names), version=node.version if node else -1)
        transaction.commit()
        return token

    def listed(self, token: str) -> list[Day]:
        """The days that the token was given for."""
        node = self._plan()
        if node is None or node.value.token != token:
            raise WrongUse(f"Cannot remove days of {self.ledger.stream}: {token} is not the token of the last list")
        return [Day(name) for name in node.value.days]

    def execute(self, token: str, leases: HourLeases, *, force: bool) -> Iterator[Day]:
        """Remove exactly the days that the token was given for; yield each when it is gone."""
        for day in self.listed(token):
            held = self._held(day)
            if held and not force:
                raise TidemarkError(f"Cannot remove {self.ledger.stream}/{day}: {held} since it was listed; --force")
            self._expire(day, leases)
            self._delete_work(day)
            self._delete_flags(day)
            self.storage.delete(str(day), recursive=True)
            yield day

    def _plan(self) -> Versioned[Retention] | None:
        return read(self.ledger.client, paths.retention(self.ledger.stream), Retention)

    def _is_gone(self, day: Day) -> bool:
        return self.ledger.day(str(day)).value.state is HourState.EXPIRED and self.storage.status(str(day)) is None

    def _held(self, day: Day) -> str | None:
        node = self.ledger.day(str(day))
        if node.value.state is HourState.EXPIRED:
            return None
        if not node.value.revision:
            return "it is not ready"
        for hour in hours_of_day(str(day)):
            record = self.ledger.hour(hour).value
            if record.dirty or record.unflagged or record.archiving or record.publishing:
                return f"{hour} waits for its next revision"
        return None

    def _expire(self, day: Day, leases: HourLeases) -> None:
        for hour in hours_of_day(str(day)):
            if not leases.take(hour):
                raise TidemarkError(f"Cannot remove {self.ledger.stream}/{day}: another worker holds {hour}; try again")
            leases.update("expire", hour, _expired)
            leases.release(hour)
        node = self.ledger.day(str(day))
        expired = DayRecord(state=HourState.EXPIRED, revision=node.value.revision, hours=node.value.hours)
        with suppress(AlreadyExists):
            # What a rebuild of the ledger tells a removed day from a lost one by.
            self.storage.create(layout.expired(str(day)), dump(expired))
        transaction = Transaction(self.ledger.client, f"expire {self.ledger.stream}/{day}")
        transaction.put(paths.day(self.ledger.stream, str(day)), expired, version=node.version)
        transaction.commit()

    def _delete_work(self, day: Day) -> None:
        """So that the renames of whoever was at work on the day find nothing, and bring nothing of it back."""
        for status in self.storage.list(layout.WORK):
            if layout.is_work_of_day(status.path, str(day)):
                self.storage.delete(status.path, recursive=True)

    def _delete_flags(self, day: Day) -> None:
        """The day's first, then the hours'."""
        for folder in (str(day), *(layout.hour_folder(hour) for hour in hours_of_day(str(day)))):
            for status in self.storage.list(folder):
                if status.path.rsplit("/", 1)[-1].startswith(layout.HOURS_FLAG):
                    self.storage.delete(status.path)


def _expired(record: HourRecord) -> HourRecord:
    return HourRecord(state=HourState.EXPIRED, revision=record.revision, archives=record.archives, lease=record.lease)
