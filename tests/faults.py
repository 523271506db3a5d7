"""Streams that are disturbed, and their twins that are not: copies of one ledger with the same frozen shift."""

import re
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from kazoo.client import KazooClient
from pyspark.sql import SparkSession
from tests.jobs import ConsumeJob
from tests.services import KafkaTopic, Sent, connections_of, lines_of, unique, walk

from tidemark.config import Stream
from tidemark.drive.consume import consume_interval
from tidemark.drive.plan import plan_interval
from tidemark.failpoints import FAILPOINTS, Failpoint
from tidemark.ledger import paths
from tidemark.ledger.records import Worker, parse
from tidemark.ledger.zookeeper import open_session
from tidemark.names import HOUR_MS, Hour, Interval, Task
from tidemark.stack import Stack
from tidemark.storage import Storage, open_storage

HOUR = Hour.parse("2026-11-10T22")
INTERVAL = Interval(HOUR.start_ms, HOUR.end_ms)
PARTITIONS = 2
_YEAR_2099_MS = 4_070_908_800_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """All that a stream has in ZooKeeper and in storage, by path."""

    nodes: Mapping[str, bytes]
    files: Mapping[str, bytes]


def records() -> list[Sent]:
    """Lines of two hours in every partition, one that is skewed, and a tombstone."""
    return [
        *(Sent(partition=n % PARTITIONS, time_ms=_time(n), value=f"line {n}".encode()) for n in range(60)),
        Sent(partition=0, time_ms=_YEAR_2099_MS, value=b"from 2099"),
        Sent(partition=1, time_ms=HOUR.start_ms, value=None),
    ]


def _time(number: int) -> int:
    return HOUR.start_ms + number * 60_000 - (HOUR_MS if number % 4 > 1 else 0)


class Start(Enum):
    """What a job finds."""

    NOTHING = "a stream that was never planned"
    PLANNED = "a frozen shift"
    PENDING = "a shift whose driver died when it had marked it PENDING"
    DAMAGED = "the same, but one of its files is lost"
    IN_THE_WAY = "a frozen shift, and other bytes under the name of one of its files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    start: Start
    also: Mapping[Failpoint, str] = field(default_factory=dict)
    exit_code: int = -signal.SIGKILL


# A renewal comes every ten seconds: the job waits for it before it reads.
_RENEWING = Case(start=Start.PLANNED, also={"consume.before_read": "wait"})
# Only the task's worker dies, in a Spark without further tries: its driver ends by itself.
_IN_A_TASK = Case(start=Start.PLANNED, exit_code=1)
CASES: Mapping[Failpoint, Case] = {
    "lease.before_take": Case(start=Start.NOTHING),
    "lease.after_take": Case(start=Start.NOTHING),
    "lease.before_renewal": _RENEWING,
    "lease.after_renewal": _RENEWING,
    "lease.before_release": Case(start=Start.PENDING),
    "lease.after_release": Case(start=Start.PENDING),
    "plan.before_transaction": Case(start=Start.NOTHING),
    "plan.after_transaction": Case(start=Start.NOTHING),
    "consume.task_writing": _IN_A_TASK,
    "consume.task_wrote_files": _IN_A_TASK,
    "commit.before_replacing": Case(start=Start.IN_THE_WAY),
    # From PENDING on a first driver and one that rolls forward take the same steps, the latter without Spark.
    "commit.after_moves": Case(start=Start.PENDING),
    "commit.after_blocks": Case(start=Start.PENDING),
    "commit.after_discard": Case(start=Start.PENDING),
    "commit.after_holding": Case(start=Start.PENDING),
    "commit.before_transaction": Case(start=Start.PENDING),
    "recover.before_adopt": Case(start=Start.PENDING),
    "recover.after_adopt": Case(start=Start.PENDING),
    "recover.before_rollback": Case(start=Start.DAMAGED),
    "recover.after_rollback": Case(start=Start.DAMAGED),
}
_DRIVERS = ("lease", "plan", "consume", "commit", "recover")
OF_A_DRIVER = tuple(name for name in FAILPOINTS if name.partition(".")[0] in _DRIVERS)


def case_of(failpoint: Failpoint) -> Case:
    return CASES.get(failpoint, Case(start=Start.PLANNED))


def left_for(start: Start, twins: "Twins", pending: Callable[[], Left]) -> Left | None:
    if start is Start.NOTHING:
        return None
    if start is Start.PLANNED:
        return twins.planned
    if start is Start.IN_THE_WAY:
        taken = next(path for path in twins.undisturbed.files if "/_incoming/" in path)
        return replace(twins.planned, files={**twins.planned.files, taken: b"of an earlier try"})
    if start is Start.PENDING:
        return pending()
    left = pending()
    lost = next(path for path in left.files if path.endswith(".bm"))
    return replace(left, files={path: data for path, data in left.files.items() if path != lost})


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """One topic; any number of streams that consume it."""

    stack: Stack
    spark: SparkSession
    topic: KafkaTopic
    folder: Path

    def stream(self, left: Left | None = None, *, below: str = "hdfs:///faults") -> Stream:
        """A new stream, which finds what another one left."""
        name = unique("fault")
        stream = Stream(
            name=name,
            cluster="main",
            topic=self.topic.name,
            root=f"{below}/{name}",
            owner="test",
            compression="fast",
        )
        if left:
            self._write_nodes(name, left.nodes)
            for path, data in left.files.items():
                self.storage(stream).create(path, data)
        return stream

    def storage(self, stream: Stream) -> Storage:
        return open_storage(stream.root, connections_of(self.stack))

    def plan(self, stream: Stream, attempt: int = 1) -> None:
        plan_interval(stream, INTERVAL, connections_of(self.stack), Task(name="test", attempt=attempt))

    def consume(self, stream: Stream, attempt: int = 1, before_reading: Callable[[], None] = lambda: None) -> None:
        """In this process, with the Spark that tests share."""

        def open_spark() -> SparkSession:
            before_reading()
            return self.spark

        task = Task(name="test", attempt=attempt)
        consume_interval(stream, INTERVAL, connections_of(self.stack), task, open_spark)

    def job(
        self,
        stream: Stream,
        failpoints: Mapping[Failpoint, str],
        *,
        attempt: int = 2,
        task: str = "test",
        master: str = "local[2]",
    ) -> ConsumeJob:
        """In a process of its own, with a Spark of its own."""
        folder = self.folder / unique(stream.name)
        return ConsumeJob(self.stack, stream, INTERVAL, Task(name=task, attempt=attempt), folder, failpoints, master)

    def look(self, stream: Stream) -> Left:
        with open_session(connections_of(self.stack)) as client:
            nodes = dict(nodes_below(client, paths.stream(stream.name)))
        storage = self.storage(stream)
        return Left(nodes=nodes, files={path: storage.read(path) for path, _ in walk(storage)})

    def outcome(self, stream: Stream) -> Left:
        """What must not depend on what happened on the way: all but the stream's name, leases and epochs."""
        left = self.look(stream)
        nodes = {path: data for path, data in left.nodes.items() if path.split("/")[1] not in ("lease", "epoch")}
        nodes["/head"] = re.sub(rb'"epoch":\d+', b'"epoch":-', nodes["/head"])
        return Left(nodes=nodes, files={path: _without_name(data) for path, data in left.files.items()})

    def lines(self, stream: Stream) -> list[tuple[int, bytes]]:
        """(time, message) of every line in any file of the stream, below `_tmp` too, by a strict Avro reader."""
        storage = self.storage(stream)
        files = [path for path, _ in walk(storage) if path.endswith(".bm")]
        return sorted(line for path in files for line in lines_of(storage, path))

    def expected_lines(self) -> list[tuple[int, bytes]]:
        return sorted((when, value) for _, _, when, value in self.topic.read_all() if value is not None)

    def tasks_at_work(self) -> list[str]:
        with open_session(connections_of(self.stack)) as client:
            nodes = dict(nodes_below(client, paths.WORKERS))
        return [parse(Worker, data).task for data in nodes.values()]

    def _write_nodes(self, stream: str, nodes: Mapping[str, bytes]) -> None:
        with open_session(connections_of(self.stack)) as client:
            for path, data in nodes.items():
                client.create(f"{paths.stream(stream)}{path}", data, makepath=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    stream: Stream
    reached: list[str]
    exit_code: int
    log: str


class Twins:
    """The undisturbed run, and the states that disturbed ones begin with: all from one plan."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        twin = faults.stream()
        faults.plan(twin)
        self.planned = faults.look(twin)
        faults.consume(twin)
        self.undisturbed = faults.outcome(twin)
        self.expected_lines = faults.expected_lines()

    def kill(
        self, left: Left | None, failpoint: Failpoint, also: Mapping[Failpoint, str] | None = None, attempt: int = 2
    ) -> Killed:
        stream = self.faults.stream(left)
        with self.faults.job(stream, {failpoint: "kill", **(also or {})}, attempt=attempt) as job:
            exit_code = job.wait()
            return Killed(stream=stream, reached=job.reached, exit_code=exit_code, log=job.log)

    def leave_pending(self) -> Left:
        return self.faults.look(self.kill(self.planned, "commit.after_pending", attempt=1).stream)


def assert_undisturbed(faults: Faults, stream: Stream, wanted: Left, lines: list[tuple[int, bytes]]) -> None:
    found = faults.outcome(stream)
    assert found.nodes == wanted.nodes
    assert sorted(found.files) == sorted(wanted.files)
    assert found.files == wanted.files
    assert faults.lines(stream) == lines
    assert faults.storage(stream).list("_tmp") == []


def _without_name(data: bytes) -> bytes:
    """A manifest names its stream: the one that wrote it, where another found it and finished its work."""
    return re.sub(rb'"stream":"fault-[0-9a-f]{8}"', b'"stream":"-"', data)


def nodes_below(client: KazooClient, folder: str, path: str = "") -> Iterator[tuple[str, bytes]]:
    for name in sorted(client.get_children(f"{folder}{path}")):
        below = f"{path}/{name}"
        yield below, client.get(f"{folder}{below}")[0]
        yield from nodes_below(client, folder, below)
