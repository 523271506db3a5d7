"""Services that go away and come back, a log that is not what it was, a full quota: an error or nothing at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from pyspark.sql import SparkSession
from tests.faults import HOUR, PARTITIONS, Faults, Left, records
from tests.services import KafkaTopic, Sent, connections_of, unique
from tests.waiting import wait_until

from tidemark.config import Stream
from tidemark.drive import services
from tidemark.drive.archive import archive_stream
from tidemark.drive.consume import consume_interval
from tidemark.drive.plan import plan_interval
from tidemark.drive.publish import publish_stream
from tidemark.environment import WEBHDFS, Connections
from tidemark.errors import DataLoss
from tidemark.ledger.stream import StreamLedger
from tidemark.ledger.zookeeper import open_session
from tidemark.names import Hour, Interval, Task
from tidemark.stack import Stack

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
def test_a_service_that_crashes_and_comes_back_between_plan_and_reading_disturbs_nothing(
    faults: Faults, stack: Stack, service: str
) -> None:
    stream, wanted = planned_stream(faults)

    def crash() -> None:
        stack.kill(service)
        stack.start(service)

    faults.consume(stream, before_reading=crash)
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


def test_a_topic_that_was_deleted_and_made_again_is_neither_planned_nor_consumed(faults: Faults) -> None:
    consumed, planned = faults.stream(), faults.stream()
    faults.consume(consumed)
    faults.plan(planned)
    admin = AdminClient(kafka_settings(faults))
    admin.delete_topics([faults.topic.name])[faults.topic.name].result(30)
    wait_until(lambda: faults.topic.name not in admin.list_topics(timeout=10).topics, "the topic is gone", within_s=30)
    again = KafkaTopic(faults.stack, faults.topic.name, PARTITIONS)
    again.send(records())
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
    producer = Producer({**kafka_settings(faults), "transactional.id": unique("hanging")})
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


def kafka_settings(faults: Faults) -> dict[str, Any]:
    return dict(connections_of(faults.stack)("kafka_main").extra)


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
    flags = publish_stream(stream, connections_of(faults.stack), task)
    return [f"{flag.subject} {flag.revision}" for flag in flags]
