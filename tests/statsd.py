"""A StatsD server of the tests, and what statsd_exporter's mapping makes of its lines."""

import re
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import yaml

from tidemark.environment import repository_folder
from tidemark.metrics import Kind

KINDS = {"g": Kind.GAUGE, "c": Kind.COUNTER}


@dataclass(frozen=True, slots=True)
class Received:
    name: str
    value: float
    kind: Kind


@dataclass(frozen=True, slots=True)
class StatsdServer:
    port: int
    datagrams: list[str] = field(default_factory=list)

    def settings(self) -> dict[str, str]:
        """What Airflow has to be told."""
        return {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
            "AIRFLOW__METRICS__STATSD_PORT": str(self.port),
        }

    def received(self, part: str) -> list[Received]:
        """In the order of arrival, those with the part in their names; timers are left out."""
        lines = [line for datagram in list(self.datagrams) for line in datagram.splitlines()]
        split = [re.fullmatch(r"([^:]+):([^|]+)\|([a-z]+)", line) for line in lines if part in line]
        return [Received(row[1], float(row[2]), KINDS[row[3]]) for row in split if row and row[3] in KINDS]

    def total(self, name: str) -> float:
        return sum(found.value for found in self.received(name) if found.name == name)


@contextmanager
def statsd_server() -> Iterator[StatsdServer]:
    """On a free port, for as long as it is open."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            found.datagrams.append(self.request[0].decode())

    with socketserver.UDPServer(("127.0.0.1", 0), Handler) as server:
        # Airflow sends hundreds of its own at once.
        server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_000_000)
        found = StatsdServer(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


def mapped(name: str, kind: Kind) -> tuple[str, dict[str, str]]:
    """Name and labels by docs/monitoring/statsd-mapping.yml: `*` is one part of a name, the first match counts."""
    text = (repository_folder() / "docs" / "monitoring" / "statsd-mapping.yml").read_text("utf-8")
    for mapping in yaml.safe_load(text)["mappings"]:
        pattern = re.escape(mapping["match"]).replace(r"\*", "([^.]*)")
        match = re.fullmatch(pattern, name)
        if match and mapping.get("match_metric_type", kind) == kind:
            parts = match.groups()
            labels = mapping.get("labels", {})
            return _filled(mapping["name"], parts), {key: _filled(value, parts) for key, value in labels.items()}
    raise AssertionError(f"{name} has no mapping")


def _filled(template: str, parts: tuple[str, ...]) -> str:
    return re.sub(r"\$\{?(\d)\}?", lambda found: parts[int(found[1]) - 1], template)
