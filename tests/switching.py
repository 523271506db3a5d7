"""Streams that are switched from one cluster to another, by the library and by the command."""

import json
import os
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from pyspark.sql import SparkSession
from tests.canaries import walk_nodes
from tests.clusters import OTHER, TwoClusters
from tests.commands import tidemark
from tests.pipeline import FIRST, Pipeline, build, expected_lines, records
from tests.services import KafkaTopic, visible_lines, walk

from tidemark.drive.acts import look_at_switch, switch_timeline
from tidemark.failpoints import Failpoint
from tidemark.ledger.records import Timeline
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.names import Hour, Task

OPERATOR = Task(name="operator", attempt=1)
SECOND = Hour(FIRST.end_ms)


def moving_pipeline(
    clusters: TwoClusters, spark: SparkSession, *, partitions: int = 2, max_records: int = 1000
) -> Pipeline:
    return build(
        clusters.main,
        spark,
        "hdfs",
        "/timelines",
        partitions=partitions,
        connections=clusters.connections(),
        grace="3s",
        max_clock_skew="2s",
        max_records=max_records,
    )


def switch(pipeline: Pipeline, topic: KafkaTopic, cluster: str = OTHER, **options: Any) -> str:
    outlook = look_at_switch(pipeline.stream, cluster, topic.name, pipeline.connections)
    return switch_timeline(pipeline.stream, outlook, pipeline.connections, OPERATOR, **{"stable_s": 0.0, **options})


def timelines_of(pipeline: Pipeline) -> dict[int, Timeline]:
    return pipeline.ledger(StreamLedger.timelines)


def version_of(pipeline: Pipeline) -> int:
    return pipeline.ledger(lambda ledger: ledger.timelines_version().value.version)


def nodes_of(pipeline: Pipeline) -> dict[str, Any]:
    """All that ZooKeeper has of the stream, with the versions and times of its nodes."""
    with open_session(pipeline.connections) as client:
        return {path: client.get(path) for path in walk_nodes(client, f"/streams/{pipeline.stream.name}")}


def completed_shards(pipeline: Pipeline) -> list[str]:
    shards = pipeline.ledger(lambda ledger: ledger.positions().value.shards)
    return [str(shard) for shard, position in sorted(shards.items()) if position.completed]


def assert_each_record_once(pipeline: Pipeline, *topics: KafkaTopic) -> None:
    wanted = sorted(line for topic in (pipeline.topic, *topics) for line in expected_lines(topic))
    assert sorted(visible_lines(pipeline.storage)) == wanted


class Commands:
    """The command line, as an operator of this one stream has it."""

    def __init__(self, pipeline: Pipeline, environment: dict[str, str], folder: Path) -> None:
        stream = pipeline.stream
        file = folder / "streams.yaml"
        settings = {"cluster": "main", "topic": stream.topic, "root": stream.root, "owner": "test"}
        file.write_text(json.dumps({"streams": {stream.name: settings}}))
        self._stream = stream.name
        self._environment = {**environment, "TIDEMARK_STREAMS": str(file)}

    def run(self, command: str, *arguments: str) -> CompletedProcess[str]:
        return tidemark("timeline", command, self._stream, *arguments, environment=self._environment)

    def begin_switch(self, topic: KafkaTopic, failpoint: Failpoint, act: str, witness: Path) -> "subprocess.Popen[str]":
        """With a failpoint armed; what was reached is in the witness."""
        arguments = ("--cluster", OTHER, "--topic", topic.name, "--stable-for", "1s", "--yes")
        armed = {"TIDEMARK_FAILPOINT": f"{failpoint}={act}", "TIDEMARK_FAILPOINT_WITNESS": str(witness)}
        return subprocess.Popen(
            [
                *(sys.executable, "-c", "from tidemark.cli.main import main; main()"),
                *("timeline", "switch", self._stream, *arguments),
            ],
            env={"PATH": os.defpath, **self._environment, **armed},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def assert_killed_switch_leaves_all_or_nothing(
    clusters: TwoClusters, spark: SparkSession, folder: Path, failpoint: Failpoint
) -> None:
    """Whoever comes next, a run or another switch, finds a stream that goes on; nobody repairs anything."""
    pipeline, target = moving_pipeline(clusters, spark), clusters.topic(OTHER, 2)
    pipeline.topic.send(records(FIRST, 10, 2))
    pipeline.run(FIRST)
    witness = folder / "witness"
    commands = Commands(pipeline, clusters.environment(), folder)
    with commands.begin_switch(target, failpoint, "kill", witness) as process:
        told, _ = process.communicate(timeout=180)
    assert (process.returncode, witness.read_text().split()) == (-9, [failpoint]), told
    orders = sorted(timelines_of(pipeline))
    assert (orders, version_of(pipeline)) in (([1], 1), ([1, 2], 2))
    if orders == [1]:
        switch(pipeline, target)
    assert_goes_on(pipeline, target)


def assert_goes_on(pipeline: Pipeline, target: KafkaTopic) -> None:
    target.send(records(SECOND, 8, 2))
    assert pipeline.run(SECOND) == [f"{SECOND} 1"]
    assert completed_shards(pipeline) == ["0001-0", "0001-1"]
    assert_each_record_once(pipeline, target)
    acts = [path for path, _ in walk(pipeline.storage, "_manifests") if "-switch-" in path and path.endswith(".json")]
    assert len(acts) == 1
    assert list(walk(pipeline.storage, "_tmp")) == []
