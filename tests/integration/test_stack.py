"""The embedded stack, on real processes."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import psutil
import pytest
import requests
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from hdfs import InsecureClient
from kazoo.client import KazooClient

from tidemark.environment import parse_connection
from tidemark.errors import TidemarkError, WrongUse
from tidemark.stack import DATA_SERVICES, SPARK_CLUSTER, ServiceStatus, Stack
from tidemark.stack.ports import HOST
from tidemark.stack.processes import marked_processes, service_of


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Stack]:
    """A stack of its own for a test that ends it, crashes it or breaks it."""
    stack = Stack(tmp_path / "small")
    try:
        yield stack
    finally:
        stack.down()


class TestAStackOfItsOwn:
    def test_a_second_up_finds_what_runs(self, small: Stack) -> None:
        small.up(["zookeeper"])
        pid = zookeeper_of(small).pid
        steps: list[str] = []
        small.up(["zookeeper"], on_step=steps.append)
        assert zookeeper_of(small).pid == pid
        assert steps == [f"zookeeper: runs already, {zookeeper_of(small).address}"]

    def test_down_leaves_no_process_and_the_next_up_finds_ports_and_data(self, small: Stack) -> None:
        small.up(["zookeeper"])
        address = zookeeper_of(small).address
        write_node(address, b"kept")
        small.down()
        assert marked_processes(small.home) == []
        assert not zookeeper_of(small).running
        small.up(["zookeeper"])
        assert zookeeper_of(small).address == address
        assert read_node(address) == b"kept"

    def test_down_where_nothing_runs_does_nothing(self, small: Stack) -> None:
        small.down()
        assert not any(each.running for each in small.status() if each.log)

    def test_an_up_that_was_killed_half_way_is_cleaned_up_by_the_next(self, small: Stack) -> None:
        crashed = subprocess.Popen(tidemark("up", "zookeeper", "kafka"), env=environment_for(small))
        wait_until(lambda: bool(marked_processes(small.home)))
        crashed.send_signal(signal.SIGKILL)
        crashed.wait()
        small.up(["zookeeper"])
        assert {service_of(process) for process in marked_processes(small.home)} <= {"zookeeper", "kafka"}
        assert len(marked_processes(small.home, "zookeeper")) == 1
        small.down()
        assert marked_processes(small.home) == []

    def test_processes_of_a_home_that_was_deleted_are_ended(self, small: Stack) -> None:
        small.up(["zookeeper"])
        (lost,) = marked_processes(small.home)
        shutil.rmtree(small.home)
        steps: list[str] = []
        small.up(["zookeeper"], on_step=steps.append)
        assert steps[0] == "zookeeper: ended what was left of it"
        assert lost not in marked_processes(small.home)

    def test_a_killed_service_starts_again_on_its_port_and_its_data(self, small: Stack) -> None:
        small.up(["zookeeper"])
        before = zookeeper_of(small)
        write_node(before.address, b"kept")
        small.kill("zookeeper")
        assert not zookeeper_of(small).running
        small.start("zookeeper")
        after = zookeeper_of(small)
        assert after.address == before.address
        assert after.pid != before.pid
        assert read_node(after.address) == b"kept"

    def test_a_port_that_is_taken_is_named_with_its_owner(self, small: Stack) -> None:
        with socket.socket() as other:
            other.bind((HOST, 0))
            other.listen()
            port = other.getsockname()[1]
            command = tidemark("up", "zookeeper", "--port", f"zookeeper={port}")
            done = subprocess.run(command, env=environment_for(small), capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr.startswith(f"tidemark: Cannot start zookeeper: port {port} is taken by ")
        assert f"(pid {os.getpid()})" in done.stderr
        assert done.stderr.count("\n") == 1

    def test_a_given_port_is_used_and_cannot_be_moved_while_the_service_runs(self, small: Stack) -> None:
        small.up(["zookeeper"], ports={"zookeeper": (port := free_port())})
        assert zookeeper_of(small).address == f"{HOST}:{port}"
        with pytest.raises(WrongUse, match=f"it runs on {port}; run `tidemark stack down` first"):
            small.up(["zookeeper"], ports={"zookeeper": free_port()})

    def test_a_service_that_dies_while_it_starts_is_told_with_the_end_of_its_log(self, small: Stack) -> None:
        data = small.home / "zookeeper" / "data"
        data.mkdir(parents=True)
        (data / "version-2").write_text("not a folder")
        with pytest.raises(TidemarkError, match=r"(?s)Cannot start zookeeper: its process has ended.*version-2"):
            small.up(["zookeeper"])
        assert marked_processes(small.home) == []

    def test_the_command_tells_the_status_and_the_environment(self, small: Stack) -> None:
        environment = environment_for(small)
        assert subprocess.run(tidemark("status"), env=environment, capture_output=True).returncode == 1
        small.up(["zookeeper"], extra_environment={"TIDEMARK_STREAMS": "/a b/streams.yaml"})
        status = subprocess.run(tidemark("status", "--json"), env=environment, capture_output=True, check=True)
        zookeeper, spark = json.loads(status.stdout)
        assert zookeeper["running"]
        assert zookeeper["memory_mb"] > 0
        assert Path(zookeeper["log"]).exists()
        assert (spark["name"], spark["address"], spark["pid"]) == ("spark", "local[2]", None)
        exports = subprocess.run(tidemark("env"), env=environment, capture_output=True, check=True, text=True)
        assert "export TIDEMARK_STREAMS='/a b/streams.yaml'\n" in exports.stdout
        assert f"export TIDEMARK_HOME={small.home}\n" in exports.stdout


class TestTheSharedStack:
    def test_everything_listens_on_this_machine_alone(self, stack: Stack) -> None:
        listening = {
            connection.laddr[0]
            for process in marked_processes(stack.home)
            for connection in process.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening == {HOST}

    def test_two_stacks_do_not_disturb_each_other(self, stack: Stack, small: Stack) -> None:
        before = [each.pid for each in stack.status()]
        small.up(["zookeeper"])
        small.down()
        assert [each.pid for each in stack.status()] == before

    def test_kafka_takes_records_of_any_time_and_keeps_them(self, environment: dict[str, str]) -> None:
        address = environment["TIDEMARK_KAFKA"]
        create_topic(address, "any-time")
        times = [1, 1_000_000_000_000, 4_102_444_800_000]
        producer = Producer({"bootstrap.servers": address, "message.max.bytes": 16 * 1024 * 1024})
        for milliseconds in times:
            producer.produce("any-time", b"x" * 8_000_000, timestamp=milliseconds)
            assert producer.flush(30) == 0
        assert read_times(address, "any-time", len(times)) == times

    def test_data_survives_when_every_service_is_killed(self, stack: Stack, environment: dict[str, str]) -> None:
        address = environment["TIDEMARK_KAFKA"]
        create_topic(address, "survives")
        producer = Producer({"bootstrap.servers": address, "acks": "all"})
        producer.produce("survives", b"x", timestamp=7)
        assert producer.flush(30) == 0
        files = hdfs_client(environment)
        files.write("/survives", b"x" * 100_000)
        for name in reversed(DATA_SERVICES):
            stack.kill(name)
        stack.up(DATA_SERVICES)
        assert stack.environment() == environment
        assert read_times(address, "survives", 1) == [7]
        with files.read("/survives") as reader:
            assert reader.read() == b"x" * 100_000
        files.write("/survives", b"y", overwrite=True)


class TestAirflow:
    def test_its_four_services_are_healthy_and_its_pages_ask_for_the_password(self, airflow_stack: Stack) -> None:
        login = airflow_stack.login()
        health = requests.get(f"{login.address}/api/v2/monitor/health", timeout=30).json()
        assert {part["status"] for part in health.values()} == {"healthy"}
        assert sign_in(login.address, login.user, login.password).status_code == 201
        assert sign_in(login.address, login.user, "wrong").status_code == 401

    def test_its_secrets_are_for_their_owner_alone(self, airflow_stack: Stack) -> None:
        files = [airflow_stack.home / "state.json", airflow_stack.home / "airflow" / "passwords.json"]
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}

    def test_the_airflow_command_finds_the_connections(self, airflow_stack: Stack) -> None:
        environment = {**os.environ, **airflow_stack.environment()}
        command = ["airflow", "connections", "get", "kafka_main", "--output", "json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert environment["TIDEMARK_KAFKA"] in done.stdout

    def test_a_killed_scheduler_is_healthy_only_by_a_heartbeat_of_its_own(self, airflow_stack: Stack) -> None:
        airflow_stack.kill("scheduler")
        begin = time.time()
        airflow_stack.start("scheduler")
        health = requests.get(f"{airflow_stack.login().address}/api/v2/monitor/health", timeout=30).json()
        beat = health["scheduler"]["latest_scheduler_heartbeat"]
        assert begin < parse_time(beat)


class TestASparkCluster:
    def test_its_workers_are_registered_and_the_connection_names_the_master(self, spark_cluster: Stack) -> None:
        assert [each.name for each in spark_cluster.status()] == [*SPARK_CLUSTER, "spark"]
        text = spark_cluster.environment()["AIRFLOW_CONN_SPARK_DEFAULT"]
        master = parse_connection("spark_default", text).host
        assert master is not None
        assert master.startswith(f"spark://{HOST}:")


def zookeeper_of(stack: Stack) -> ServiceStatus:
    return next(each for each in stack.status() if each.name == "zookeeper")


def tidemark(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).parent / "tidemark"), "stack", *arguments]


def environment_for(stack: Stack) -> dict[str, str]:
    return {**os.environ, "TIDEMARK_HOME": str(stack.home)}


def wait_until(is_so: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


def write_node(address: str, value: bytes) -> None:
    client = KazooClient(hosts=address)
    client.start()
    client.create("/kept", value)
    client.stop()


def read_node(address: str) -> bytes:
    client = KazooClient(hosts=address)
    client.start()
    value: bytes = client.get("/kept")[0]
    client.stop()
    return value


def create_topic(address: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for created in admin.create_topics([NewTopic(name, num_partitions=1)]).values():
        created.result(30)


def read_times(address: str, topic: str, count: int) -> list[int]:
    settings = {"bootstrap.servers": address, "group.id": "test", "fetch.message.max.bytes": 16 * 1024 * 1024}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    times: list[int] = []
    deadline = time.monotonic() + 60
    while len(times) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message and not message.error():
            times.append(message.timestamp()[1])
    consumer.close()
    return times


def hdfs_client(environment: dict[str, str]) -> InsecureClient:
    connection = parse_connection("webhdfs_default", environment["AIRFLOW_CONN_WEBHDFS_DEFAULT"])
    return InsecureClient(f"http://{connection.host}:{connection.port}", user=connection.login)


def sign_in(address: str, user: str, password: str) -> requests.Response:
    return requests.post(f"{address}/auth/token", json={"username": user, "password": password}, timeout=30)


def parse_time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
