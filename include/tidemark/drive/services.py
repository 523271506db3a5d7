"""One stream and the living services around it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kazoo.client import KazooClient

from tidemark.config import Stream
from tidemark.environment import Connections, kafka_connection
from tidemark.kafka import KafkaCluster
from tidemark.ledger.hour_lease import HourLeases
from tidemark.ledger.lease import StreamLease, WorkerNode, announce_work, join_workers, touch_worker
from tidemark.ledger.records import Shift
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.lineage import live
from tidemark.names import Task
from tidemark.storage import FileAttributes, Storage, open_storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """One stream and the living services around it, for as long as a task runs."""

    stream: Stream
    task: Task
    client: KazooClient
    worker: WorkerNode
    ledger: StreamLedger
    connections: Connections

    def lease(self) -> StreamLease:
        return StreamLease(self.client, self.stream.name, self.worker, renew_for_s=self.task.timeout_s)

    def hour_leases(self) -> HourLeases:
        return HourLeases(self.ledger, self.worker, renew_for_s=self.task.timeout_s)

    def storage(self) -> Storage:
        return open_storage(self.stream.root, self.connections, attributes_of(self.stream))

    def announce(self, shift: Shift) -> None:
        """Show the others that the shift's shards are being worked on here."""
        queues = tuple(f"{self.stream.name}/{shard}" for shard in shift.shards)
        versions = {self.stream.name: shift.timelines_version}
        announce_work(self.client, self.worker, queues=queues, versions=versions)

    @property
    def kafka(self) -> Callable[[str], KafkaCluster]:
        return clusters(self.connections)

    def server_ms(self) -> int:
        """ZooKeeper's clock, read by writing a node."""
        return touch_worker(self.client, self.worker)


def clusters(connections: Connections) -> Callable[[str], KafkaCluster]:
    """Kafka, by the cluster's name."""
    return lambda cluster: KafkaCluster(connections(kafka_connection(cluster)))


def kafka_connections_of(stream: Stream, connections: Connections) -> list[str]:
    """The ids of the connections to the clusters of every timeline that may still be read."""
    with open_session(connections) as client:
        timelines = live(StreamLedger(client, stream.name).timelines())
    return sorted({kafka_connection(found.cluster) for found in timelines.values()} or {stream.kafka_connection})


def attributes_of(stream: Stream) -> FileAttributes:
    asked = stream.files
    return FileAttributes(owner=asked.owner, group=asked.group, mode=asked.mode, replication=asked.replication)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def services(stream: Stream, connections: Connections, task: Task) -> Iterator[Services]:
    with (
        open_session(connections) as client,
        join_workers(
            client,
            task=task.name,
            attempt=task.attempt,
            queues=(stream.name,),
            leave_after_s=task.timeout_s,
        ) as worker,
    ):
        ledger = StreamLedger(client, stream.name)
        ledger.prepare()
        yield Services(
            stream=stream,
            task=task,
            client=client,
            worker=worker,
            ledger=ledger,
            connections=connections,
        )
