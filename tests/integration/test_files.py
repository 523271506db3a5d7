"""Files get the owner, group, mode and replication that their stream asks for, whoever of the stages wrote them."""

from collections.abc import Callable
from pathlib import Path

from hdfs import InsecureClient
from pyspark.sql import SparkSession
from tests.services import KafkaTopic, Sent, connections_of, unique, walk

from tidemark.config import Files, Stream
from tidemark.drive.archive import archive_stream
from tidemark.drive.consume import consume_interval
from tidemark.drive.publish import publish_stream
from tidemark.environment import WEBHDFS
from tidemark.names import Hour, Interval, Task
from tidemark.stack import Stack
from tidemark.storage import open_storage

HOUR = Hour.parse("2026-11-10T22")
TASK = Task(name="test", attempt=1)
FILES = Files.model_validate({"mode": "0640", "replication": 2})


def run(stack: Stack, spark: SparkSession, root: str) -> list[str]:
    """One hour from Kafka to its flag; the paths of all files that there are then."""
    name = unique("files")
    stream = Stream(name=name, cluster="main", topic=name, root=f"{root}/{name}", owner="test", files=FILES)
    topic = KafkaTopic(stack, name, 1)
    topic.send(Sent(partition=0, time_ms=HOUR.start_ms + n, value=b"line") for n in range(5))
    connections = connections_of(stack)
    consume_interval(stream, Interval(HOUR.start_ms, HOUR.end_ms), connections, TASK, lambda: spark)
    archive_stream(stream, connections, TASK, lambda: spark)
    publish_stream(stream, connections, TASK)
    return [f"{name}/{path}" for path, _ in walk(open_storage(stream.root, connections))]


def assert_each_stage_wrote(paths: list[str]) -> None:
    for ending in (".bm", ".json", ".blocks", ".jsonl", "_READY"):
        assert any(path.endswith(ending) for path in paths), (ending, paths)


def test_files_in_hdfs_have_mode_and_replication_of_their_stream(stack: Stack, spark: SparkSession) -> None:
    paths = run(stack, spark, "hdfs:///files")
    assert_each_stage_wrote(paths)
    connection = connections_of(stack)(WEBHDFS)
    status: Callable[[str], dict[str, object]] = InsecureClient(
        f"http://{connection.host}:{connection.port}", user=connection.login
    ).status
    for path in paths:
        found = status(f"/files/{path}")
        assert (found["permission"], found["replication"]) == ("640", 2), path


def test_local_files_have_the_mode_of_their_stream(stack: Stack, spark: SparkSession, tmp_path: Path) -> None:
    paths = run(stack, spark, f"file://{tmp_path}")
    assert_each_stage_wrote(paths)
    assert {(tmp_path / path).stat().st_mode & 0o777 for path in paths} == {0o640}
    folders = {(tmp_path / path).parent.stat().st_mode for path in paths}
    assert folders == {tmp_path.joinpath(paths[0].split("/")[0]).stat().st_mode}, "folders are left as they are made"
