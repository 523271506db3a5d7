"""Random histories of one stream on real Kafka and ZooKeeper: writes, plans, crashes, retries, backfills, growth."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.faults import OF_A_DRIVER
from tests.pipeline import Pipeline, build
from tests.services import Sent, lines_of, walk

from tidemark import failpoints
from tidemark.drive.services import now_ms
from tidemark.failpoints import FAILPOINTS
from tidemark.names import HOUR_MS, Hour, Task
from tidemark.plan import planner
from tidemark.stack import Stack

# Renewal is a matter of time, and tasks run in processes of their own: test_faults kills there.
STEPS = [step for step in OF_A_DRIVER if "renewal" not in step and "task" not in step]
OLDEST = 8
"""Hours before the first planned one that records may belong to, and that may be backfilled."""
LONGEST = 12


class Died(BaseException):
    """A driver dies here; nothing but an exception handler of a test may catch it."""


@contextmanager
def dying_at(step: str | None, visits: int) -> Iterator[None]:
    """The process of the driver does nothing more behind its n-th visit to the step, not even give its lease back."""
    left = visits

    def reach(name: str) -> None:
        nonlocal left
        left -= name == step
        if not left:
            die()

    def die() -> NoReturn:
        raise Died

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(failpoints, "_armed", lambda: dict.fromkeys(FAILPOINTS, reach))
        yield


@dataclass
class History:
    pipeline: Pipeline
    first: Hour = field(default_factory=lambda: Hour(Hour.of(now_ms()).start_ms - (LONGEST + 3) * HOUR_MS))
    done: int = 0
    attempt: int = 0
    written: int = 0

    def write(self, partition: int, amount: int) -> None:
        times = [self.first.start_ms - (n + amount) % OLDEST * HOUR_MS + n for n in range(amount)]
        self.pipeline.topic.send(
            Sent(
                partition=partition % self.pipeline.topic.partitions,
                time_ms=time_ms,
                value=f"{self.written + n}".encode(),
            )
            for n, time_ms in enumerate(times)
        )
        self.written += amount

    def run(self, step: str | None = None, visits: int = 1) -> None:
        """The hour that is due; the next one is due when it was done to the end."""
        self.done += self._consume(Hour(self.first.start_ms + self.done * HOUR_MS), step, visits)

    def backfill(self, hours: int) -> None:
        self._consume(Hour(self.first.start_ms - hours * HOUR_MS))

    def _consume(self, hour: Hour, step: str | None = None, visits: int = 1) -> bool:
        """A later try of one task, so that it need not wait until the dead one's session is over."""
        self.attempt += 1
        with dying_at(step, visits), suppress(Died):
            self.pipeline.consume(hour, Task(name="random", attempt=self.attempt))
            return True
        return False

    def grow(self) -> None:
        if self.pipeline.topic.partitions < 4:
            self.pipeline.topic.add_partitions(1)


acts = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 3), st.integers(1, 30)),
    st.tuples(st.just("crash"), st.sampled_from(STEPS), st.integers(1, 3)),
    st.tuples(st.just("retry"), st.just(""), st.just(0)),
    st.tuples(st.just("backfill"), st.just(""), st.integers(1, OLDEST)),
    st.tuples(st.just("grow"), st.just(""), st.just(0)),
)


# On real services a smaller example is not worth its time.
@settings(max_examples=20, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(acts, min_size=4, max_size=LONGEST), st.sampled_from(["earliest", "latest"]), st.integers(1, 40))
def test_every_record_is_committed_once_whatever_happens(
    stack: Stack,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    history: list[tuple[str, str | int, int]],
    start: str,
    max_records: int,
) -> None:
    monkeypatch.setattr(planner, "SPLIT_RECORDS", 7)
    world = History(build(stack, spark, "file", str(tmp_path), partitions=2, start=start, max_records=max_records))
    world.write(0, 10)
    for act, what, number in history:
        match act:
            case "write":
                world.write(int(what), number)
            case "crash":
                world.run(str(what), number)
            case "retry":
                world.run()
            case "backfill":
                world.backfill(number)
            case "grow":
                world.grow()
    # The hour of a driver that died behind its commit is done; the one behind it takes all that is left.
    world.run()
    world.run()
    assert_each_once(world)


def assert_each_once(world: History) -> None:
    """Each record of the ranges that manifests name, and no other; live ones reach from a shard's start to its end."""
    storage, found = world.pipeline.storage, world.pipeline.topic.read_all()
    manifests = [json.loads(storage.read(path)) for path, _ in walk(storage, "_manifests") if path.endswith(".json")]
    ranges = [
        (int(shard.partition("-")[2]), range(row["start"], row["end"]))
        for manifest in manifests
        for shard, row in manifest["shards"].items()
    ]
    committed = Counter((partition, offset) for partition, offsets in ranges for offset in offsets)
    assert set(committed.values()) <= {1}
    positions = world.pipeline.ledger(lambda ledger: ledger.positions().value.shards)
    starts = {shard.partition: position.start for shard, position in positions.items()}
    assert {key for key in committed if key[1] >= starts[key[0]]} == {
        (partition, offset) for partition, offset, _, _ in found if offset >= starts[partition]
    }
    files = [file["path"] for manifest in manifests for file in manifest["files"]]
    assert Counter(line for path in files for line in lines_of(storage, path)) == Counter(
        (time_ms, value) for partition, offset, time_ms, value in found if (partition, offset) in committed
    )
    assert sorted(files) == sorted(path for path, _ in walk(storage) if path.endswith(".bm"))
    assert storage.list("_tmp") == []
