"""An hour against a Kafka with SASL_SSL and a ZooKeeper with digest: it works, and no secret is seen anywhere."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

import certifi
import pytest
from kazoo.security import make_digest_acl
from pyspark.sql import SparkSession
from tests.canaries import AWKWARD, Canaries, ProcessList, walk_nodes
from tests.commands import airflow_command, tidemark
from tests.integration.test_airflow import client_of, last_hours, named
from tests.services import KafkaTopic, Sent, connections_of, visible_lines

from tidemark.config import Stream
from tidemark.environment import WEBHDFS, ZOOKEEPER, Connection, parse_connection, variable_of
from tidemark.errors import ServiceUnreachable, WrongUse
from tidemark.kafka import KafkaCluster
from tidemark.kafka_options import java_settings
from tidemark.ledger.zookeeper import open_session
from tidemark.names import isoformat
from tidemark.stack import Stack
from tidemark.storage import open_storage
from tidemark_airflow.operators import SparkJobOperator

CANARIES = Canaries()
USER = "tidemark"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home = tmp_path_factory.mktemp("secured")
    CANARIES.seed(home)
    stack = Stack(home)
    try:
        stack.up(("zookeeper", "kafka"), secured=True)
        yield stack
    finally:
        stack.down()


@pytest.fixture
def kafka(secured: Stack) -> Connection:
    return connections_of(secured)("kafka_main")


@pytest.fixture
def environment(airflow_stack: Stack, secured: Stack, tmp_path: Path) -> dict[str, str]:
    """ZooKeeper as a URI, WebHDFS with a password, a Spark that writes all it knows into log and event log."""
    zookeeper = connections_of(secured)(ZOOKEEPER)
    webhdfs = connections_of(airflow_stack)(WEBHDFS)
    password = quote(zookeeper.password or "", "")
    uri = f"zookeeper://{USER}:{password}@{zookeeper.host}:{zookeeper.port}/?chroot=%2Fdeep%2Fer"
    own = {"login": webhdfs.login, "password": AWKWARD.format(CANARIES.webhdfs)}
    return {
        **airflow_stack.environment(),
        variable_of(ZOOKEEPER): uri,
        variable_of(WEBHDFS): json.dumps({"conn_type": "webhdfs", "host": webhdfs.host, "port": webhdfs.port, **own}),
        "SPARK_CONF_DIR": str(talkative_spark(Path(airflow_stack.environment()["SPARK_CONF_DIR"]), tmp_path)),
        # Not Airflow's own: `dags test` writes what is to be masked into its log at that level (3.3.2).
        "AIRFLOW__LOGGING__NAMESPACE_LEVELS": "kazoo=DEBUG tidemark=DEBUG hdfs=DEBUG urllib3=DEBUG",
    }


def talkative_spark(settings: Path, folder: Path) -> Path:
    events, own = folder / "events", folder / "spark-conf"
    events.mkdir()
    shutil.copytree(settings, own)
    with (own / "spark-defaults.conf").open("a") as file:
        file.write(f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\n")
        file.write("spark.eventLog.compress false\n")
    logging = own / "log4j2.properties"
    more = "\nlogger.kafka.name = org.apache.kafka\nlogger.kafka.level = DEBUG\n"
    more += "logger.sql.name = org.apache.spark.sql\nlogger.sql.level = DEBUG\n"
    logging.write_text(logging.read_text().replace("WARN", "INFO") + more)
    return own


def import_connection(airflow_stack: Stack, kafka: Connection, folder: Path) -> None:
    path = folder / "connections.json"
    path.write_text(json.dumps({"kafka_secured": {"conn_type": "kafka", "extra": dict(kafka.extra)}}))
    airflow_command("connections", "import", "--overwrite", str(path), environment=airflow_stack.environment())
    path.unlink()


def test_an_hour_is_ready_with_logins_everywhere_and_no_secret_is_seen(
    airflow_stack: Stack, secured: Stack, kafka: Connection, environment: Mapping[str, str], tmp_path: Path
) -> None:
    import_connection(airflow_stack, kafka, tmp_path)
    (hour,) = last_hours(1)
    sent = [Sent(partition=n % 2, time_ms=hour.start_ms + n, value=f"line {n}".encode()) for n in range(100)]
    KafkaTopic(secured, "secured", 2).send(sent)

    processes = ProcessList()
    with processes.watched():
        done = subprocess.run(
            ["airflow", "dags", "test", "ingest_secured", isoformat(hour.end_ms), "--conf", named(hour)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-5000:]
    webhdfs = parse_connection(WEBHDFS, environment[variable_of(WEBHDFS)])
    storage = open_storage("hdfs:///airflow/secured", lambda _: webhdfs)
    assert sorted(visible_lines(storage)) == [(record.time_ms, record.value) for record in sent]
    assert storage.status(f"{hour.day}/{hour.hh}/_READY")

    for job in (b"jobs/consume.py", b"jobs/archive.py"):
        assert any(job in line and b"SparkSubmit" in line for line in processes.seen)
    assert [line for line in processes.seen if CANARIES.found_in(line)] == []
    assert "sasl.jaas.config = [hidden]" in output
    assert CANARIES.found_in(output) == set()
    events = [path.read_text() for path in (tmp_path / "events").rglob("*") if path.is_file()]
    assert any("SparkListenerSQLExecutionStart" in text for text in events)
    assert CANARIES.files_below(tmp_path, airflow_stack.home) == set()
    # What the broker itself has to know, and the stack's memory of what it made up.
    assert CANARIES.files_below(secured.home) == {"server.properties", "state.json"}

    airflow = client_of(airflow_stack)
    shown = json.dumps(airflow.get("/api/v2/connections/kafka_secured"))
    assert "SCRAM-SHA-512" in shown
    assert CANARIES.found_in(shown) == set()

    zookeeper = replace(parse_connection(ZOOKEEPER, environment[variable_of(ZOOKEEPER)]), extra={"chroot": "/"})
    acl = [make_digest_acl(USER, zookeeper.password, all=True)]
    with open_session(lambda _: zookeeper) as client:
        nodes = list(walk_nodes(client, "/deep"))
        assert f"/deep/er/streams/secured/hours/{hour.day}/{hour.hh}" in nodes
        assert {path: client.get_acls(path)[0] for path in nodes} == dict.fromkeys(nodes, acl)
        assert [path for path in nodes if CANARIES.found_in(client.get(path)[0])] == []


def test_a_wrong_or_missing_login_is_one_clear_error_and_no_wait(secured: Stack, kafka: Connection) -> None:
    def ask(**changed: str) -> None:
        settings = {name.replace("_", "."): value for name, value in changed.items()}
        KafkaCluster(replace(kafka, extra={**kafka.extra, **settings})).describe("any")

    with pytest.raises(WrongUse, match=r"refuses the login: .*invalid credentials"):
        ask(sasl_password="wrong")
    with pytest.raises(WrongUse, match=r"refuses the login: .*Unsupported SASL mechanism"):
        ask(sasl_mechanism="SCRAM-SHA-256")
    with pytest.raises(ServiceUnreachable, match=r"cannot be talked to over TLS: .*certificate verify failed"):
        ask(ssl_ca_location=certifi.where())
    with pytest.raises(WrongUse, match=r"Cannot use the connection kafka_main: .*sasl.pasword"):
        ask(sasl_pasword="wrong")

    zookeeper = connections_of(secured)(ZOOKEEPER)
    with open_session(lambda _: zookeeper):
        pass
    for wrong in (replace(zookeeper, password="wrong"), replace(zookeeper, login=None, password=None)):
        with pytest.raises(WrongUse, match="is not open to"), open_session(partial(given, wrong)):
            pass


def given(connection: Connection, _: str) -> Connection:
    return connection


def test_the_command_line_tells_a_wrong_password_in_one_line(secured: Stack, streams_file: Path) -> None:
    found = json.loads(secured.environment()[variable_of(ZOOKEEPER)])
    wrong = json.dumps({**found, "password": "wrong-password"})
    environment = {**secured.environment(), variable_of(ZOOKEEPER): wrong, "TIDEMARK_STREAMS": str(streams_file)}
    with open_session(connections_of(secured)):
        pass
    done = tidemark("offsets", "secured", environment=environment)
    assert done.returncode == 2
    assert "is not open to the login 'tidemark'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "wrong-password" not in done.stderr


@pytest.mark.parametrize("password", ["plain", AWKWARD.format("x"), 'a"b\\', "new\nline\r", "\\n\\\\\"';ü€ = "])
def test_java_reads_every_password_as_it_is(spark: SparkSession, password: str) -> None:
    settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.password": password}
    jaas = java_settings(Connection(conn_id="x", extra={**settings, "sasl.username": password}))["sasl.jaas.config"]
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    config = jvm.org.apache.kafka.common.security.JaasContext.loadClientContext(
        {"sasl.jaas.config": jvm.org.apache.kafka.common.config.types.Password(jaas)}
    )
    (entry,) = config.configurationEntries()
    assert dict(entry.getOptions()) == {"username": password, "password": password}


@pytest.mark.parametrize("master", ["local[2]", "spark://h:7077", "yarn"])
def test_spark_submit_has_the_connections_in_its_environment_alone(
    secured: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    """Up to the process that the provider starts: here it writes down what it was given."""
    submit = tmp_path / "spark-submit"
    submit.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {tmp_path}/command\nenv > {tmp_path}/environment\n")
    submit.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv(variable_of("spark_default"), json.dumps({"conn_type": "spark", "host": master}))
    for name in (variable_of(ZOOKEEPER), variable_of("kafka_main")):
        monkeypatch.setenv(name, secured.environment()[name])
    settings = {"name": "any", "cluster": "main", "topic": "any", "root": "file:///any", "owner": "tests"}
    operator = SparkJobOperator(task_id="job", stream=Stream.model_validate(settings), job="consume")
    operator.execute({})
    command, environment = (tmp_path / "command").read_text(), (tmp_path / "environment").read_text()
    assert f"--master\n{master}\n" in command
    assert CANARIES.found_in(command) == set()
    assert CANARIES.found_in(environment) == {"kafka", "zookeeper"}
    assert not operator.env_vars
