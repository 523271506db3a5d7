"""What lies below `_tmp` and is nobody's: no job holds it, and no open shift, archive or publication names it."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from tidemark import layout
from tidemark.errors import WrongUse
from tidemark.ledger import paths
from tidemark.ledger.lease import read_lease
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import ask
from tidemark.names import Day, Hour, parse_subject
from tidemark.storage import Storage

_WORK = re.compile(r"_tmp/(archive|flag)-([0-9T-]+)-([0-9]{4,})")
_SHIFT = "_tmp/shift-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    ledger: StreamLedger
    storage: Storage

    def find(self) -> list[str]:
        """The listing comes first: what is named only after it is not in it."""
        work = [status.path for status in self.storage.list(layout.WORK)]
        return [freed for path in work for freed in self._freed(path)]

    def delete(self) -> list[str]:
        found = self.find()
        for path in found:
            self.storage.delete(path, recursive=True)
            with suppress(WrongUse):
                # Only when nothing else is in it.
                self.storage.delete(path.rpartition("/")[0])
        return found

    def _freed(self, path: str) -> Iterator[str]:
        if path.startswith(_SHIFT):
            yield from self._freed_epochs(path)
            return
        match = _WORK.fullmatch(path)
        if match is None:
            return
        subject, number = parse_subject(match[2]), int(match[3])
        if match[1] == "flag":
            is_free = self._is_flag_done(subject, number)
        else:
            is_free = isinstance(subject, Hour) and self._is_archive_done(subject, number)
        if is_free:
            yield path

    def _freed_epochs(self, path: str) -> Iterator[str]:
        """A job that holds the lease, or takes it later, has a higher epoch than one that is free now."""
        lease = read_lease(self.ledger.client, self.ledger.stream)
        is_held = lease.owner and ask(self.ledger.client.exists_async, paths.worker(lease.owner))
        if path.removeprefix(_SHIFT) == self.ledger.head().value.open:
            return
        names = {status.path: status.path.rsplit("/", 1)[-1] for status in self.storage.list(path)}
        for place, epoch in ((place, int(name)) for place, name in names.items() if name.isdigit()):
            if epoch < lease.epoch or (epoch == lease.epoch and not is_held):
                yield place

    def _is_archive_done(self, hour: Hour, number: int) -> bool:
        plan = self.ledger.hour(hour).value.archiving
        return plan is None or plan.number != number

    def _is_flag_done(self, subject: Hour | Day, revision: int) -> bool:
        """One that is prepared has a higher revision than the hour."""
        node = self.ledger.hour(subject) if isinstance(subject, Hour) else self.ledger.day(str(subject))
        return revision <= node.value.revision and node.value.publishing is None
