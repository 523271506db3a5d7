"""Kafka: one broker that is its own controller (KRaft)."""

import hashlib
import json
import logging
import secrets
import shutil
import socket
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import override

from tidemark.environment import Connection, kafka_connection, variable_of
from tidemark.kafka_options import java_settings
from tidemark.stack.certificates import provide_certificates
from tidemark.stack.files import write_whole
from tidemark.stack.jars import class_path, pyspark_home
from tidemark.stack.ports import HOST
from tidemark.stack.service import CONSOLE_LOGGING, QUICK_START, RunTool, Service, Site, java_command

_CONNECTION = kafka_connection("main")
_MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_FOREVER = 2**63 - 1
# Records keep the times their producers gave them, however far away, and are never deleted for their age.
_SETTINGS = f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{HOST}:{{controller}}
controller.listener.names=CONTROLLER
listeners=CLIENTS://{HOST}:{{broker}},CONTROLLER://{HOST}:{{controller}}
advertised.listeners=CLIENTS://{HOST}:{{broker}}
inter.broker.listener.name=CLIENTS
listener.security.protocol.map=CLIENTS:{{protocol}},CONTROLLER:PLAINTEXT
log.dirs={{data}}
num.network.threads=2
num.io.threads=4
num.partitions=1
auto.create.topics.enable=false
default.replication.factor=1
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
log.message.timestamp.before.max.ms={_FOREVER}
log.message.timestamp.after.max.ms={_FOREVER}
message.max.bytes={_MAX_MESSAGE_BYTES}
replica.fetch.max.bytes={_MAX_MESSAGE_BYTES}
socket.request.max.bytes={4 * _MAX_MESSAGE_BYTES}
"""
_USER = "tidemark"
_MECHANISM = "SCRAM-SHA-512"
_ITERATIONS = 4096
# Users who are made later may do what they are granted. Nobody has no name but the broker to itself as its controller.
_SECURED_SETTINGS = f"""\
sasl.enabled.mechanisms={_MECHANISM}
sasl.mechanism.inter.broker.protocol={_MECHANISM}
listener.name.clients.{_MECHANISM.lower()}.sasl.jaas.config={{jaas}}
ssl.keystore.type=PEM
ssl.keystore.location={{server}}
ssl.truststore.type=PEM
ssl.truststore.location={{ca}}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{_USER};User:ANONYMOUS
"""


class Kafka(Service):
    name = "kafka"
    ports = ("kafka", "kafka-controller")

    @override
    def prepare(self, site: Site, run: RunTool) -> None:
        folder = _folder(site)
        write_whole(folder / "log4j2.properties", CONSOLE_LOGGING.format(level="INFO"))
        settings = _SETTINGS.format(
            broker=site.ports["kafka"],
            controller=site.ports["kafka-controller"],
            data=folder / "data",
            protocol="SASL_SSL" if site.secured else "PLAINTEXT",
        )
        if site.secured:
            settings += _secured_settings(site)
        write_whole(folder / "server.properties", settings)
        if not (folder / "formatted").exists():
            shutil.rmtree(folder / "data", ignore_errors=True)
            run("kafka-format", _format_command(site))
            (folder / "formatted").touch()

    @override
    def command(self, site: Site) -> list[str]:
        settings = str(_folder(site) / "server.properties")
        return java_command(site, _class_path(site), "kafka.Kafka", settings, memory_mb=512, options=_logging(site))

    @override
    def address(self, site: Site) -> str:
        return f"{HOST}:{site.ports['kafka']}"

    @override
    def lacks(self, site: Site, started: float) -> str | None:
        # librdkafka is slow to notice that a port has opened, and noisy before.
        socket.create_connection((HOST, site.ports["kafka"]), timeout=5).close()
        return _lacks_broker(_connection(site).extra)

    @override
    def exports(self, site: Site) -> dict[str, str]:
        connection = {"conn_type": "kafka", "extra": dict(_connection(site).extra)}
        return {variable_of(_CONNECTION): json.dumps(connection), "TIDEMARK_KAFKA": self.address(site)}


def _connection(site: Site) -> Connection:
    settings = {"bootstrap.servers": f"{HOST}:{site.ports['kafka']}"}
    if site.secured:
        settings |= {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": _MECHANISM,
            "sasl.username": _USER,
            "sasl.password": site.secrets.kafka_password,
            "ssl.ca.location": str(_ca_file(site)),
        }
    return Connection(conn_id=_CONNECTION, extra=settings)


def _secured_settings(site: Site) -> str:
    ca, server = _ca_file(site), _folder(site) / "server.pem"
    provide_certificates(ca, server)
    jaas = java_settings(_connection(site))["sasl.jaas.config"]
    # A properties file has escapes of its own.
    return _SECURED_SETTINGS.format(jaas=jaas.replace("\\", "\\\\"), ca=ca, server=server)


def _ca_file(site: Site) -> Path:
    return _folder(site) / "ca.pem"


def _lacks_broker(settings: Mapping[str, str]) -> str | None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    silent = logging.Logger("kafka-health", logging.CRITICAL)
    client = AdminClient({**settings, "socket.timeout.ms": 5000}, logger=silent)
    try:
        brokers = client.list_topics(timeout=5).brokers
    except KafkaException as error:
        return f"metadata ({error})"
    return None if brokers else "a broker in its metadata"


def _folder(site: Site) -> Path:
    return site.home / "kafka"


def _class_path(site: Site) -> str:
    # PySpark's Ivy leaves Scala out of what it resolves, as PySpark has it.
    (scala,) = (pyspark_home() / "jars").glob("scala-library-*.jar")
    return f"{_folder(site)}:{class_path('kafka')}:{scala}"


def _logging(site: Site) -> tuple[str, ...]:
    # kafka-tools brings a log4j2.yaml of its own.
    return (f"-Dlog4j2.configurationFile={_folder(site)}/log4j2.properties",)


def _format_command(site: Site) -> list[str]:
    # 16 random bytes as Kafka writes them; a leading dash would be taken for an option.
    cluster = "T" + secrets.token_urlsafe(16)[1:]
    settings = str(_folder(site) / "server.properties")
    arguments = ["format", "--cluster-id", cluster, "--config", settings]
    if site.secured:
        arguments += ["--add-scram", _scram_user(site)]
    options = (*_logging(site), QUICK_START)
    return java_command(site, _class_path(site), "kafka.tools.StorageTool", *arguments, memory_mb=256, options=options)


def _scram_user(site: Site) -> str:
    """What a broker keeps of a password: the password itself would stand in the list of processes."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha512", site.secrets.kafka_password.encode(), salt, _ITERATIONS)
    salt_text, salted_text = (b64encode(value).decode() for value in (salt, salted))
    fields = f'name={_USER},iterations={_ITERATIONS},salt="{salt_text}",saltedpassword="{salted_text}"'
    return f"{_MECHANISM}=[{fields}]"
