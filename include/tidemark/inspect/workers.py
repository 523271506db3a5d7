"""Who holds what: the workers that live, and the lease of each stream."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tidemark.ledger import paths
from tidemark.ledger.records import LeaseRecord, Worker, parse
from tidemark.ledger.zookeeper import ask, children

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    name: str
    task: str
    attempt: int
    queues: tuple[str, ...]
    versions: Mapping[str, int]
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """`since_ms` is when it was taken, `renewed_ms` when it was last written; both by ZooKeeper's clock."""

    stream: str
    owner: str | None
    task: str
    attempt: int
    epoch: int
    count: int
    losses: int
    """How often it was taken from a holder that had not given it back."""
    since_ms: int | None
    renewed_ms: int
    is_held: bool
    """False: nobody has it, or its owner's node is gone; whoever wants it takes it at once."""


def view_workers(client: KazooClient) -> list[WorkerView]:
    views: list[WorkerView] = []
    for name in children(client, paths.WORKERS):
        found = _read(client, paths.worker(name), Worker)
        if found:
            record, stat = found
            views.append(
                WorkerView(
                    name=name,
                    task=record.task,
                    attempt=record.attempt,
                    queues=record.queues,
                    versions=record.versions,
                    since_ms=stat.ctime,
                )
            )
    return views


def view_leases(client: KazooClient) -> list[LeaseView]:
    """Of every stream that was ever worked on."""
    views = [view_lease(client, stream) for stream in children(client, paths.STREAMS)]
    return [view for view in views if view]


def view_lease(client: KazooClient, stream: str) -> LeaseView | None:
    found = _read(client, paths.lease(stream), LeaseRecord)
    if found is None:
        return None
    lease, stat = found
    taken = ask(client.exists_async, paths.epoch(stream, lease.epoch)) if lease.epoch else None
    is_held = lease.owner is not None and ask(client.exists_async, paths.worker(lease.owner)) is not None
    return LeaseView(
        stream=stream,
        owner=lease.owner,
        task=lease.task,
        attempt=lease.attempt,
        epoch=lease.epoch,
        count=lease.count,
        losses=lease.losses,
        since_ms=taken.ctime if taken else None,
        renewed_ms=stat.mtime,
        is_held=is_held,
    )


def _read(client: KazooClient, path: str, kind: type[Record]) -> tuple[Record, Any] | None:
    """The record with ZooKeeper's account of its node. None: it is not there, or went away meanwhile."""
    try:
        data, stat = ask(client.get_async, path)
    except NoNodeError:
        return None
    return parse(kind, data), stat
