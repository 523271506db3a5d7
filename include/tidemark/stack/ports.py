"""Ports of 127.0.0.1: given ones, remembered ones, free ones."""

import random
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import psutil

from tidemark.errors import TidemarkError, WrongUse

HOST = "127.0.0.1"
# Below the range from which the kernel takes the ports of outgoing connections: a service that is started
# again must find its port free.
FREE_PORTS = range(20_000, 32_000)


def parse_ports(texts: Iterable[str], known: Iterable[str]) -> dict[str, int]:
    """`kafka=9092` and the like."""
    names = list(known)
    ports = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in names:
            raise WrongUse(f"Cannot read the port {text!r}: {name!r} is not one of {', '.join(names)}")
        if not (number.isascii() and number.isdigit() and 0 < int(number) < 65_536):
            raise WrongUse(f"Cannot read the port {text!r}: wanted {name}=<1 to 65535>")
        ports[name] = int(number)
    return ports


@contextmanager
def claim_ports(
    names: Sequence[str], given: Mapping[str, int], remembered: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """A port for each name: the given one or an error, else the remembered one if free, else a free one.

    Free ones are bound, without listening, until the context ends: a second stack that chooses at the same
    moment passes them by, while the service itself may bind them.
    """
    with ExitStack() as bound:
        ports: dict[str, int] = {}
        for name in names:
            if name in given:
                _require_free(name, given[name])
                ports[name] = given[name]
            elif name in remembered and is_free(remembered[name]):
                ports[name] = remembered[name]
            else:
                taken = {*ports.values(), *given.values(), *remembered.values()}
                ports[name] = _bind_free_port(bound, taken)
        yield ports


def is_free(port: int) -> bool:
    """Whether a service could listen there now; connections that outlive their service do no harm."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen()
        except OSError:
            return False
    return True


def _require_free(name: str, port: int) -> None:
    if not is_free(port):
        raise TidemarkError(
            f"Cannot start {name}: port {port} is taken{_listener(port)}; "
            f"end that process, or choose another port (--port {name}=<number>)"
        )


def _listener(port: int) -> str:
    """` by java (pid 12)`, or nothing when the system does not tell."""
    try:
        listening = [
            connection.pid
            for connection in psutil.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,) and connection.pid
        ]
        return f" by {psutil.Process(listening[0]).name()} (pid {listening[0]})" if listening else ""
    except psutil.Error:
        return ""


def _bind_free_port(bound: ExitStack, taken: set[int]) -> int:
    for port in random.sample(FREE_PORTS, len(FREE_PORTS)):
        if port not in taken:
            reservation = socket.socket()
            try:
                reservation.bind((HOST, port))
            except OSError:
                reservation.close()
            else:
                # Set after binding: strict against other stacks, lenient towards the service.
                reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                bound.enter_context(reservation)
                return port
    raise TidemarkError(f"Cannot start the stack: no free port from {FREE_PORTS.start} to {FREE_PORTS.stop}")
