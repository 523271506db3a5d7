"""How long it takes to decide, to publish nothing, and to parse the DAGs."""

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

from tidemark.config import Stream
from tidemark.demo.sample import create_topic
from tidemark.drive.consume import consume_interval
from tidemark.drive.publish import publish_stream
from tidemark.environment import Connections, inherited_environment, repository_folder
from tidemark.ledger.records import HourRecord, Positions, ShardPosition
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.names import HOUR_MS, Hour, Interval, Shard, Task
from tidemark.publish.announce import confirm
from tidemark.publish.rule import reasons_against

_SHARDS, _HOURS, _STREAMS = 1000, 72, 50
_ROUNDS = 5
_NOON = Hour.parse("2026-11-15T12")
_TASK = Task(name="bench", attempt=1)
_PARSE = """
import sys, time
from airflow.dag_processing.dagbag import DagBag
begin = time.monotonic()
bag = DagBag(sys.argv[1])
seconds = time.monotonic() - begin
assert not bag.import_errors and len(bag.dags) >= int(sys.argv[2]), (bag.import_errors, len(bag.dags))
print(seconds)
"""


def time_ready(connections: Connections, folder: Path) -> dict[str, float]:
    """Seconds, by what is measured; the names say what is asked of each."""
    return {
        "rule_1000_shards_72_hours": time_rule(),
        "publish_nothing": time_idle_publish(connections, folder),
        "parse_50_streams": time_parsing(folder),
    }


def time_rule() -> float:
    """1,000 shards, 72 hours that all but the last three shards have passed, so that those have something to say."""
    marks = {number: _NOON.end_ms + (HOUR_MS if number < _SHARDS - 3 else -1) for number in range(_SHARDS)}
    positions = Positions(start_ms=0, first_ms=0).with_shards(
        {
            Shard(1, number): ShardPosition(start=0, next=42, watermark_ms=mark, digest=None)
            for number, mark in marks.items()
        }
    )
    hours = [Hour(_NOON.start_ms - back * HOUR_MS) for back in range(_HOURS)]
    times = []
    for _ in range(_ROUNDS):
        begin = time.monotonic()
        held = [hour for hour in hours if reasons_against(hour, HourRecord(), positions, _NOON.end_ms + HOUR_MS)]
        times.append(time.monotonic() - begin)
        assert held == [_NOON]
    return statistics.median(times)


def time_idle_publish(connections: Connections, folder: Path) -> float:
    """Of a stream that is a month old and has nothing to publish: 30 days, the last one not finished."""
    name = f"idle-{uuid4().hex[:8]}"
    create_topic(connections("kafka_main"), name, 2)
    stream = Stream(name=name, cluster="main", topic=name, root=f"{folder.as_uri()}/{name}", owner="bench")
    start_ms = _NOON.start_ms - 30 * 24 * HOUR_MS
    consume_interval(stream, Interval(start_ms, _NOON.end_ms), connections, _TASK, _no_spark)
    _publish_all(stream, connections)
    begin = time.monotonic()
    found = publish_stream(stream, connections, _TASK)
    seconds = time.monotonic() - begin
    assert not found.published
    return seconds


def time_parsing(folder: Path) -> float:
    """The DAG folder with 50 streams, in a process that has imported Airflow, as its DAG processor has."""
    settings = "cluster: main, topic: t, owner: bench, ready_within: 20m, root: hdfs://"
    names = ["clicks", "payments", *(f"s{number}" for number in range(_STREAMS - 2))]
    streams = folder / "fifty.yaml"
    streams.write_text("streams:\n" + "".join(f"  {name}: {{{settings}/{name}}}\n" for name in names))
    environment = {
        **inherited_environment(),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(repository_folder() / "plugins"),
        "TIDEMARK_STREAMS": str(streams),
    }
    command = [sys.executable, "-c", _PARSE, str(repository_folder() / "dags"), str(2 * _STREAMS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def _publish_all(stream: Stream, connections: Connections) -> None:
    """And let each flag count as announced."""
    swept = publish_stream(stream, connections, _TASK)
    with open_session(connections) as client:
        confirm(StreamLedger(client, stream.name), swept.unannounced)
    publish_stream(stream, connections, _TASK)


def _no_spark() -> NoReturn:
    raise AssertionError("the topic is empty")
