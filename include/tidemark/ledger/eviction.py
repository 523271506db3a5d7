"""Free what a worker holds, and fence it: its commit fails even if nobody took the lease since."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kazoo.client import KazooClient

from tidemark.errors import CommitFailed, CommitStateUnknown
from tidemark.ledger import paths
from tidemark.ledger.lease import losses_after, read_lease, replace_lease
from tidemark.ledger.records import LeaseRecord, Worker
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import children, read
from tidemark.names import Hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A lease that a worker holds: of a stream, or of one of its hours."""

    stream: str
    hour: Hour | None
    task: str
    attempt: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.stream}/{self.hour}" if self.hour else self.stream


def find_holdings(client: KazooClient, worker: str) -> list[Holding]:
    """The streams' leases, and those of the hours of the streams that the worker says it works on."""
    node = read(client, paths.worker(worker), Worker)
    shown = {queue.partition("/")[0] for queue in node.value.queues} if node else set()
    holdings: list[Holding] = []
    for stream in children(client, paths.STREAMS):
        lease = read_lease(client, stream)
        if lease.owner == worker:
            holdings.append(holding_of(stream, lease))
        if stream in shown:
            holdings += _held_hours(client, stream, worker)
    return holdings


def evict(client: KazooClient, worker: str, holding: Holding) -> bool:
    """Free the lease with the next epoch and no owner. False: the worker has it no longer."""
    free = _free_hour if holding.hour else _free_stream
    while True:
        try:
            return free(client, worker, holding)
        except CommitFailed:
            # It was renewed, or given back, since it was read.
            continue


def _held_hours(client: KazooClient, stream: str, worker: str) -> Iterator[Holding]:
    for hour, node in StreamLedger(client, stream).hours().items():
        if node.value.lease and node.value.lease.owner == worker:
            yield holding_of(stream, node.value.lease, hour)


def holding_of(stream: str, lease: LeaseRecord, hour: Hour | None = None) -> Holding:
    return Holding(stream=stream, hour=hour, task=lease.task, attempt=lease.attempt, epoch=lease.epoch)


def _free_stream(client: KazooClient, worker: str, holding: Holding) -> bool:
    node = read(client, paths.lease(holding.stream), LeaseRecord)
    if node is None or node.value.owner != worker:
        return False
    act = f"evict {worker} from {holding}"
    freed = replace(_freed(node.value), losses=losses_after(node.value))
    _commit(
        lambda: replace_lease(client, holding.stream, node, freed, act),
        lambda: read_lease(client, holding.stream),
        freed,
    )
    return True


def _free_hour(client: KazooClient, worker: str, holding: Holding) -> bool:
    assert holding.hour is not None
    hour = holding.hour
    ledger = StreamLedger(client, holding.stream)
    node = ledger.hour(hour)
    if node.value.lease is None or node.value.lease.owner != worker:
        return False
    freed = _freed(node.value.lease)
    _commit(
        lambda: ledger.save_hour(f"evict {worker} from", hour, node, replace(node.value, lease=freed)),
        lambda: ledger.hour(hour).value.lease,
        freed,
    )
    return True


def _freed(lease: LeaseRecord) -> LeaseRecord:
    return replace(lease, owner=None, epoch=lease.epoch + 1, count=0)


def _commit(write: Callable[[], None], read_back: Callable[[], LeaseRecord | None], wanted: LeaseRecord) -> None:
    """After a lost answer a higher epoch than the evicted one means that it was written, whoever has it now."""
    try:
        write()
    except CommitStateUnknown:
        found = read_back()
        if found is None or found.epoch < wanted.epoch:
            raise
