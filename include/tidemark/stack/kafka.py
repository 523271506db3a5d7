"""Kafka: one broker that is its own controller (KRaft)."""

import json
import logging
import secrets
import shutil
import socket
from pathlib import Path

from typing_extensions import override

from tidemark.environment import variable_of
from tidemark.stack.files import write_whole
from tidemark.stack.jars import class_path, pyspark_home
from tidemark.stack.ports import HOST
from tidemark.stack.service import CONSOLE_LOGGING, QUICK_START, RunTool, Service, Site, java_command

_MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_FOREVER = 2**63 - 1
# Records keep the times their producers gave them, however far away, and are never deleted for their age.
_SETTINGS = f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{HOST}:{{controller}}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{HOST}:{{broker}},CONTROLLER://{HOST}:{{controller}}
advertised.listeners=PLAINTEXT://{HOST}:{{broker}}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
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


class Kafka(Service):
    name = "kafka"
    ports = ("kafka", "kafka-controller")

    @override
    def prepare(self, site: Site, run: RunTool) -> None:
        folder = _folder(site)
        write_whole(folder / "log4j2.properties", CONSOLE_LOGGING.format(level="INFO"))
        settings = _SETTINGS.format(
            broker=site.ports["kafka"], controller=site.ports["kafka-controller"], data=folder / "data"
        )
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
        return _lacks_broker(self.address(site))

    @override
    def exports(self, site: Site) -> dict[str, str]:
        address = self.address(site)
        connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": address}}
        return {variable_of("kafka_main"): json.dumps(connection), "TIDEMARK_KAFKA": address}


def _lacks_broker(address: str) -> str | None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    silent = logging.Logger("kafka-health", logging.CRITICAL)
    client = AdminClient({"bootstrap.servers": address, "socket.timeout.ms": 5000}, logger=silent)
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
    arguments = ("format", "--cluster-id", cluster, "--config", settings)
    options = (*_logging(site), QUICK_START)
    return java_command(site, _class_path(site), "kafka.tools.StorageTool", *arguments, memory_mb=256, options=options)
