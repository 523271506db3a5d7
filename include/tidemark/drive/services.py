"""One stream and the living services around it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kazoo.client import KazooClient

from tidemark.config import Stream
from tidemark.environment import Connections
from tidemark.ledger import paths
from tidemark.ledger.lease import StreamLease, WorkerNode, join_workers
from tidemark.ledger.records import Worker, dump
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.names import Task
from tidemark.storage import Storage, open_storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """One stream and the living services around it, for as long as a task runs."""

    stream: Stream
    client: KazooClient
    worker: WorkerNode
    ledger: StreamLedger
    connections: Connections

    def lease(self) -> StreamLease:
        return StreamLease(self.client, self.stream.name, self.worker)

    def storage(self) -> Storage:
        return open_storage(self.stream.root, self.connections)

    def server_ms(self) -> int:
        """ZooKeeper's clock, read by writing a node."""
        record = Worker(queues=(self.stream.name,), task=self.worker.task, attempt=self.worker.attempt)
        stat = self.client.retry(self.client.set, paths.worker(self.worker.name), dump(record))
        return int(stat.mtime)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def services(stream: Stream, connections: Connections, task: Task) -> Iterator[Services]:
    with (
        open_session(connections) as client,
        join_workers(client, task=task.name, attempt=task.attempt, queues=(stream.name,)) as worker,
    ):
        ledger = StreamLedger(client, stream.name)
        ledger.prepare()
        yield Services(stream=stream, client=client, worker=worker, ledger=ledger, connections=connections)
