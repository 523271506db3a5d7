"""Services that go away and come back, a log that is not what it was, a full quota: an error or nothing at all."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import requests
from confluent_kafka import Producer
from kazoo.client import KazooClient
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from tests.faults import HOUR, PARTITIONS, Faults, Left, records
from tests.pipeline import build, expected_lines, interval_of
from tests.services import KafkaTopic, Sent, connections_of, read_json, unique, visible_lines
from tests.waiting import wait_until

from tidemark.config import Stream
from tidemark.drive import services
from tidemark.drive.archive import archive_stream
from tidemark.drive.consume import consume_interval
from tidemark.drive.plan import plan_interval
from tidemark.drive.publish import publish_stream
from tidemark.environment import WEBHDFS, Connections, variable_of
from tidemark.errors import DataLoss
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.names import Hour, Interval, Task
from tidemark.stack import Stack
from tidemark.stack.jars import class_path
from tidemark.stack.java import find_java

NEXT_HOUR = Hour(HOUR.end_ms)


@pytest.fixture
def faults(stack: Stack, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Faults:
    topic = KafkaTopic(stack, unique("fault"), PARTITIONS)
    topic.send(records())
    return Faults(stack=stack, spark=spark, topic=topic, folder=tmp_path_factory.mktemp("jobs"))


def plan_next_hour(faults: Faults, stream: Stream) -> None:
    interval = Interval(NEXT_HOUR.start_ms, NEXT_HOUR.end_ms)
    plan_interval(stream, interval, connections_of(faults.stack), Task(name="next", attempt=1))


def planned_stream(faults: Faults) -> tuple[Stream, Left]:
    """A stream with a frozen shift, and the outcome of its twin that nothing disturbs."""
    stream = faults.stream()
    faults.plan(stream)
    twin = faults.stream(faults.look(stream))
    faults.consume(twin)
    return stream, faults.outcome(twin)


@pytest.mark.parametrize("service", ["zookeeper", "kafka", "namenode", "datanode"])
def test_a_service_that_crashes_and_comes_back_between_plan_and_reading_is_at_most_a_reason_to_try_again(
    faults: Faults, stack: Stack, service: str
) -> None:
    stream, wanted = planned_stream(faults)

    def crash() -> None:
        stack.kill(service)
        stack.start(service)

    try:
        faults.consume(stream, before_reading=crash)
    except PythonException as error:
        # A DataNode may find only now, while it is written to, that its connection to the NameNode is gone.
        if "ServiceUnreachable" not in str(error):
            raise
        faults.consume(stream, attempt=2)
    assert faults.outcome(stream) == wanted
    assert faults.lines(stream) == faults.expected_lines()


def test_a_job_whose_session_expired_still_commits_once_as_long_as_nobody_took_its_lease(
    faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, wanted = planned_stream(faults)
    sessions: list[KazooClient] = []

    @contextmanager
    def remember_session(connections: Connections) -> Iterator[KazooClient]:
        with open_session(connections) as client:
            sessions.append(client)
            yield client

    def expire() -> None:
        (client,) = sessions
        twin = KazooClient(hosts=_hosts(client), client_id=client.client_id)
        twin.start()
        twin.stop()
        twin.close()
        wait_until(lambda: client.connected and client.client_id != twin.client_id, "a new session", within_s=30)

    monkeypatch.setattr(services, "open_session", remember_session)
    faults.consume(stream, before_reading=expire)
    assert faults.outcome(stream) == wanted
    assert faults.lines(stream) == faults.expected_lines()


def _hosts(client: KazooClient) -> str:
    return ",".join(f"{host}:{port}" for host, port in client.hosts)


def test_a_datanode_that_goes_away_during_a_write_fails_the_job_and_a_later_try_succeeds(
    faults: Faults, stack: Stack
) -> None:
    stream, wanted = planned_stream(faults)
    with faults.job(stream, {"consume.task_writing": "wait"}) as job:
        job.wait_until_reached("consume.task_writing")
        stack.kill("datanode")
        try:
            job.go_on()
            assert job.wait() == 1
        finally:
            stack.start("datanode")
        assert "WebHDFS does not answer" in job.log
    faults.consume(stream, attempt=3)
    assert faults.outcome(stream) == wanted
    assert faults.lines(stream) == faults.expected_lines()


def test_a_full_quota_fails_the_job_in_clear_words_and_a_later_try_succeeds(faults: Faults) -> None:
    stream, wanted = planned_stream(faults)
    faults.storage(stream).make_folder("")
    set_space_quota(faults, stream, "1000")
    with pytest.raises(Exception, match=r"Cannot write /\S+ at http://\S+: The DiskSpace quota of \S+ is exceeded"):
        faults.consume(stream)
    set_space_quota(faults, stream, "-1")
    faults.consume(stream, attempt=2)
    assert faults.outcome(stream) == wanted


def set_space_quota(faults: Faults, stream: Stream, quota: str) -> None:
    connection = connections_of(faults.stack)(WEBHDFS)
    place = f"http://{connection.host}:{connection.port}/webhdfs/v1{urlsplit(stream.root).path}"
    limits = {"namespacequota": str((1 << 63) - 1), "storagespacequota": quota}
    asked = {"op": "SETQUOTA", "user.name": connection.login, **limits}
    requests.put(place, params=asked, timeout=30).raise_for_status()


def test_a_full_disk_fails_the_job_in_clear_words_and_a_later_try_succeeds(faults: Faults, tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(tmp_path)], check=True)
    try:
        stream = faults.stream(below=tmp_path.as_uri())
        faults.plan(stream)
        twin = faults.stream(faults.look(stream), below=tmp_path.parent.as_uri())
        faults.consume(twin)
        with pytest.raises(Exception, match=r"Cannot write \S+: .*No space left on device"):
            faults.consume(stream)
        subprocess.run(["mount", "-o", "remount,size=16m", str(tmp_path)], check=True)
        faults.consume(stream, attempt=2)
        assert faults.outcome(stream) == faults.outcome(twin)
        assert faults.lines(stream) == faults.expected_lines()
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_namenode_in_safe_mode_is_waited_for_then_named_and_a_later_try_succeeds(
    faults: Faults, stack: Stack
) -> None:
    stream, wanted = planned_stream(faults)
    admin(stack, "-safemode", "enter")
    try:
        with pytest.raises(Exception, match=r"Cannot \S+ /\S+ at http://\S+: .*[Ss]afe ?mode"):
            faults.consume(stream)
    finally:
        admin(stack, "-safemode", "leave")
    faults.consume(stream, attempt=2)
    assert faults.outcome(stream) == wanted
    assert faults.lines(stream) == faults.expected_lines()


def admin(stack: Stack, *arguments: str) -> None:
    """What `hdfs dfsadmin` runs."""
    java = str(find_java(print).home / "bin" / "java")
    settings = stack.home / "hdfs" / "conf"
    command = [java, "-cp", f"{settings}:{class_path('hdfs')}", "org.apache.hadoop.hdfs.tools.DFSAdmin", *arguments]
    subprocess.run(command, check=True)


def test_an_executor_that_is_killed_while_it_writes_leaves_nothing_and_its_work_is_done_by_another(
    faults: Faults, spark_cluster: Stack
) -> None:
    stream, wanted = planned_stream(faults)
    master = json.loads(spark_cluster.environment()[variable_of("spark_default")])["host"]
    with faults.job(stream, {"consume.task_writing": "wait"}, master=master) as job:
        job.wait_until_reached("consume.task_writing")
        executors = executors_of(spark_cluster)
        assert executors
        for executor in executors:
            executor.kill()

        def has_ended() -> bool:
            # Each new worker stops where the first one did.
            job.let_go()
            return job.process.poll() is not None

        wait_until(has_ended, "other executors do the work", within_s=300)
        assert job.process.returncode == 0, job.log
    assert faults.outcome(stream) == wanted
    assert faults.lines(stream) == faults.expected_lines()


def executors_of(cluster: Stack) -> list[psutil.Process]:
    workers = [psutil.Process(service.pid) for service in cluster.status() if service.pid]
    return [child for worker in workers for child in worker.children(recursive=True) if is_executor(child)]


def is_executor(process: psutil.Process) -> bool:
    try:
        return "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def test_a_topic_that_was_deleted_and_made_again_is_neither_planned_nor_consumed(faults: Faults) -> None:
    consumed, planned = faults.stream(), faults.stream()
    faults.consume(consumed)
    faults.plan(planned)
    faults.topic.make_again()
    faults.topic.send(records())
    with pytest.raises(DataLoss, match="it was deleted and made again"):
        plan_next_hour(faults, consumed)
    with pytest.raises(DataLoss, match="it was deleted and made again"):
        faults.consume(planned)
    assert faults.lines(planned) == []


def test_a_log_that_went_back_or_was_replaced_is_neither_planned_nor_consumed(faults: Faults, stack: Stack) -> None:
    consumed, planned = faults.stream(), faults.stream()
    faults.consume(consumed)
    faults.plan(planned)
    stack.stop("kafka")
    try:
        # What a broker finds that had not written its log to disk, or became leader without it.
        for file in (stack.home / "kafka" / "data" / f"{faults.topic.name}-0").glob("0*"):
            file.unlink()
    finally:
        stack.start("kafka")
    with pytest.raises(DataLoss, match=r"0001-0: start 31 is ahead, Kafka ends at 0; the log was .* went back"):
        plan_next_hour(faults, consumed)
    with pytest.raises(DataLoss, match=r"0001-0: the range of \S+ ends at 31, Kafka at 0; the log was .* went back"):
        faults.consume(planned)
    faults.topic.send(Sent(partition=0, time_ms=HOUR.start_ms, value=b"another") for _ in range(31))
    with pytest.raises(DataLoss, match="0001-0: the record at 30 is not the one that was consumed"):
        plan_next_hour(faults, consumed)
    assert faults.lines(planned) == []


def test_a_transaction_left_hanging_holds_proof_and_hour_until_it_ends(faults: Faults) -> None:
    stream = faults.stream()
    settings = dict(connections_of(faults.stack)("kafka_main").extra)
    producer = Producer({**settings, "transactional.id": unique("hanging")})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(faults.topic.name, b"in a transaction", partition=0, timestamp=HOUR.start_ms)
    assert producer.flush(30) == 0
    faults.topic.send([Sent(partition=0, time_ms=HOUR.start_ms, value=b"behind it")])
    faults.consume(stream)
    assert watermarks(faults, stream) == {0: HOUR.start_ms, 1: HOUR.end_ms}
    assert archive_and_publish(faults, stream) == []
    producer.commit_transaction(30)
    # The broker writes its markers after it has answered.
    wait_until(lambda: (HOUR.start_ms, b"behind it") in faults.expected_lines(), "the end of the transaction")
    consume_next_hour(faults, stream)
    assert watermarks(faults, stream) == {0: NEXT_HOUR.end_ms, 1: NEXT_HOUR.end_ms}
    assert archive_and_publish(faults, stream) == [f"{HOUR} 1", f"{NEXT_HOUR} 1"]
    assert faults.lines(stream) == faults.expected_lines()


def watermarks(faults: Faults, stream: Stream) -> dict[int, int]:
    with open_session(connections_of(faults.stack)) as client:
        shards = StreamLedger(client, stream.name).positions().value.shards
    return {shard.partition: position.watermark_ms for shard, position in shards.items()}


def consume_next_hour(faults: Faults, stream: Stream) -> None:
    interval = Interval(NEXT_HOUR.start_ms, NEXT_HOUR.end_ms)
    task = Task(name="next", attempt=1)
    consume_interval(stream, interval, connections_of(faults.stack), task, lambda: faults.spark)


def archive_and_publish(faults: Faults, stream: Stream) -> list[str]:
    task = Task(name="after", attempt=1)
    archive_stream(stream, connections_of(faults.stack), task, lambda: faults.spark)
    flags = publish_stream(stream, connections_of(faults.stack), task).published
    return [f"{flag.subject} {flag.revision}" for flag in flags]


def test_a_compacted_topic_is_taken_as_it_is_and_its_holes_are_counted(stack: Stack, spark: SparkSession) -> None:
    compacted = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    pipeline = build(stack, spark, "hdfs", "/compacted", partitions=1, topic_config=compacted)
    for value in (b"old", b"new"):
        pipeline.topic.send(
            Sent(partition=0, time_ms=HOUR.start_ms + n, value=value, key=str(n).encode()) for n in range(10)
        )
    # The segment that is being written is never compacted: another record begins the next one.
    pipeline.topic.send([Sent(partition=0, time_ms=HOUR.end_ms - 1, value=b"last", key=b"last")])
    wait_until(lambda: len(pipeline.topic.read_all()) == 11, "the old values are gone", within_s=180)
    assert pipeline.run(HOUR) == [f"{HOUR} 1"]
    assert sorted(visible_lines(pipeline.storage)) == expected_lines(pipeline.topic)
    manifest = read_json(pipeline.storage, f"_manifests/00000001-{interval_of(HOUR).shift}.json")
    shard = manifest["shards"]["0001-0"]
    assert (shard["end"], shard["records"], shard["holes"]) == (21, 11, 10)
    # The record before `next`, by which the next plan knows its log, goes the same way.
    newer = [(NEXT_HOUR.start_ms, b"newer"), (NEXT_HOUR.end_ms - 1, b"begins a segment")]
    pipeline.topic.send(Sent(partition=0, time_ms=when, value=value, key=b"last") for when, value in newer[:1])
    pipeline.topic.send(Sent(partition=0, time_ms=when, value=value, key=b"end") for when, value in newer[1:])
    wait_until(lambda: 20 not in {row[1] for row in pipeline.topic.read_all()}, "the last one is gone", within_s=180)
    before = visible_lines(pipeline.storage)
    assert pipeline.run(NEXT_HOUR) == [f"{NEXT_HOUR} 1"]
    assert sorted(visible_lines(pipeline.storage)) == sorted([*before, *newer])
