"""The ledger of one stream: typed reads of its nodes, and transactions on them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from tidemark.errors import CommitFailed, CommitStateUnknown
from tidemark.ledger import paths
from tidemark.ledger.records import (
    DayRecord,
    Head,
    HourRecord,
    LeaseRecord,
    Positions,
    Shift,
    ShiftRecord,
    Timeline,
    TimelinesVersion,
)
from tidemark.ledger.zookeeper import Transaction, Versioned, ask, children, ensure, read, remove
from tidemark.names import Hour, valid_stream


class StreamLedger:
    def __init__(self, client: KazooClient, stream: str) -> None:
        self.client = client
        self.stream = valid_stream(stream)

    def prepare(self) -> None:
        """Make the nodes of a stream that has none yet; an existing one is left as it is."""
        ensure(self.client, paths.timelines(self.stream), TimelinesVersion())
        ensure(self.client, paths.positions(self.stream), Positions())
        ensure(self.client, paths.lease(self.stream), LeaseRecord())
        for folder in (paths.epochs, paths.shifts, paths.hours, paths.days, paths.open_days):
            ask(self.client.ensure_path_async, folder(self.stream))
        ensure(self.client, paths.head(self.stream), Head())

    def exists(self) -> bool:
        return read(self.client, paths.head(self.stream), Head) is not None

    def head(self) -> Versioned[Head]:
        return read(self.client, paths.head(self.stream), Head) or Versioned(Head(), -1)

    def positions(self) -> Versioned[Positions]:
        return read(self.client, paths.positions(self.stream), Positions) or Versioned(Positions(), -1)

    def timelines_version(self) -> Versioned[TimelinesVersion]:
        path = paths.timelines(self.stream)
        return read(self.client, path, TimelinesVersion) or Versioned(TimelinesVersion(), -1)

    def timelines(self) -> dict[int, Timeline]:
        return {order: node.value for order, node in self.timeline_nodes().items()}

    def timeline_nodes(self) -> dict[int, Versioned[Timeline]]:
        orders = [int(name) for name in children(self.client, paths.timelines(self.stream))]
        return {order: node for order in orders if (node := self.timeline(order))}

    def timeline(self, order: int) -> Versioned[Timeline] | None:
        return read(self.client, paths.timeline(self.stream, order), Timeline)

    def shift(self, shift: str) -> Versioned[ShiftRecord] | None:
        return read(self.client, paths.shift(self.stream, shift), ShiftRecord)

    def commit_frozen(self, transaction: Transaction, shift: Shift) -> None:
        """Commit the transaction that stores this shift; an answer that was lost is read back."""
        try:
            transaction.commit()
        except CommitStateUnknown:
            stored = self.shift(shift.id)
            if stored is None or stored.value.shift != shift:
                raise

    def forget_shift(self, shift: str) -> None:
        """Of a committed one its manifest says all; nothing happens when it has no node."""
        remove(self.client, paths.shift(self.stream, shift))

    def hour(self, hour: Hour) -> Versioned[HourRecord]:
        return read(self.client, paths.hour(self.stream, hour), HourRecord) or Versioned(HourRecord(), -1)

    def hours(self) -> Mapping[Hour, Versioned[HourRecord]]:
        """Every hour that has a node: ever more, for a stream that lives long."""
        return self.hours_of(children(self.client, paths.hours(self.stream)))

    def hours_of(self, days: Iterable[str]) -> Mapping[Hour, Versioned[HourRecord]]:
        """The hours of these days that have a node."""
        found: dict[Hour, Versioned[HourRecord]] = {}
        for day in days:
            for hh in children(self.client, paths.hours_of(self.stream, day)):
                hour = Hour.parse(f"{day}T{hh}")
                found[hour] = self.hour(hour)
        return found

    def day(self, day: str) -> Versioned[DayRecord]:
        return read(self.client, paths.day(self.stream, day), DayRecord) or Versioned(DayRecord(), -1)

    @contextmanager
    def asking_for_lease(self, worker: str) -> Iterator[None]:
        """Ask the job that holds the lease to give it up when its shift is finished; the question dies with us."""
        path = f"{paths.wanted(self.stream)}/{worker}"
        with suppress(NodeExistsError):
            # Asked twice when the answer was lost.
            ask(self.client.create_async, path, ephemeral=True, makepath=True)
        try:
            yield
        finally:
            if self.client.connected:
                remove(self.client, path)

    def is_lease_wanted(self) -> bool:
        return bool(children(self.client, paths.wanted(self.stream)))

    def days(self) -> list[str]:
        """Every day that was flagged, or is about to be."""
        return children(self.client, paths.days(self.stream))

    def open_days(self) -> list[str]:
        """Days with something to look at: whoever writes an hour or a day opens it, publishing closes it."""
        return children(self.client, paths.open_days(self.stream))

    def begin(self, act: str) -> Transaction:
        return Transaction(self.client, f"{act} of {self.stream}")

    def put_hour(self, transaction: Transaction, hour: Hour, node: Versioned[HourRecord], value: HourRecord) -> None:
        """Add the hour's new value to the transaction; its day's folder is made at once, being no part of the state."""
        if node.version == -1:
            ask(self.client.ensure_path_async, paths.hours_of(self.stream, hour.day))
        transaction.ensure(paths.open_day(self.stream, hour.day))
        transaction.put(paths.hour(self.stream, hour), value, version=node.version)

    def add_dirty(self, hour: Hour, number: int, is_waiting: Callable[[HourRecord], bool] = lambda _: True) -> None:
        """Lines of a committed shift are to be archived again, if the hour's record says that they wait for it."""
        while True:
            node = self.hour(hour)
            if number in node.value.dirty or not is_waiting(node.value):
                return
            with suppress(CommitFailed):
                self.save_hour("mark dirty", hour, node, replace(node.value, dirty=(*node.value.dirty, number)))

    def put_day(self, transaction: Transaction, day: str, node: Versioned[DayRecord], value: DayRecord) -> None:
        transaction.ensure(paths.open_day(self.stream, day))
        transaction.put(paths.day(self.stream, day), value, version=node.version)

    def save_hour(self, act: str, hour: Hour, node: Versioned[HourRecord], value: HourRecord) -> None:
        transaction = self.begin(f"{act} {hour}")
        self.put_hour(transaction, hour, node, value)
        transaction.commit()
