"""A second Kafka broker as a second cluster, and streams that move between the two."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.services import KafkaTopic, unique

from tidemark.environment import Connection, Connections, parse_connection, variable_of
from tidemark.stack import Stack

OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoClusters:
    """`main` has all services, `other` a broker alone, which clients know as the cluster `other`."""

    main: Stack
    other: Stack

    def environment(self) -> dict[str, str]:
        second = self.other.environment()[variable_of("kafka_main")]
        return {**self.main.environment(), variable_of(f"kafka_{OTHER}"): second}

    def connections(self) -> Connections:
        environment = self.environment()

        def connection(conn_id: str) -> Connection:
            return parse_connection(conn_id, environment[variable_of(conn_id)])

        return connection

    def topic(self, cluster: str, partitions: int, *, config: Mapping[str, str] | None = None) -> KafkaTopic:
        stack = self.other if cluster == OTHER else self.main
        return KafkaTopic(stack, unique(cluster), partitions, config=config)
