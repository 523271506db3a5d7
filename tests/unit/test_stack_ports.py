import os
import socket

import pytest

from tidemark.errors import TidemarkError, WrongUse
from tidemark.stack.ports import HOST, claim_ports, is_free, parse_ports


def test_given_ports_are_read() -> None:
    assert parse_ports(["kafka=9092", "airflow=8080"], ["kafka", "airflow"]) == {
        "kafka": 9092,
        "airflow": 8080,
    }


@pytest.mark.parametrize("text", ["kafka", "kafka=", "kafka=0", "kafka=65536", "kafka=-1", "kafka=x", "kafka=²"])
def test_a_port_that_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="wanted kafka=<1 to 65535>"):
        parse_ports([text], ["kafka"])


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(WrongUse, match="'oracle' is not one of kafka, airflow"):
        parse_ports(["oracle=1521"], ["kafka", "airflow"])


def test_claimed_ports_differ_and_a_service_may_bind_them() -> None:
    with claim_ports(["a", "b", "c"], {}, {}) as ports, socket.socket() as service:
        assert len(set(ports.values())) == 3
        service.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        service.bind((HOST, ports["a"]))
        service.listen()
        assert not is_free(ports["a"])


def test_a_claimed_port_is_refused_to_another_stack_that_chooses_now() -> None:
    with (
        claim_ports(["a"], {}, {}) as ports,
        socket.socket() as other,
        pytest.raises(OSError, match="in use"),
    ):
        other.bind((HOST, ports["a"]))


def test_a_remembered_port_is_taken_again_when_it_is_free() -> None:
    with claim_ports(["a"], {}, {}) as ports:
        remembered = ports
    with claim_ports(["a"], {}, remembered) as ports:
        assert ports == remembered


def test_a_remembered_port_that_is_taken_is_replaced() -> None:
    with socket.socket() as other:
        taken = _listen(other)
        with claim_ports(["a"], {}, {"a": taken}) as ports:
            assert ports["a"] != taken


def test_a_given_port_that_is_taken_is_an_error_that_says_by_whom() -> None:
    with socket.socket() as other:
        taken = _listen(other)
        message = rf"Cannot start kafka: port {taken} is taken by .+ \(pid {os.getpid()}\); .*--port kafka="
        with pytest.raises(TidemarkError, match=message), claim_ports(["kafka"], {"kafka": taken}, {}):
            pass


def _listen(listener: socket.socket) -> int:
    listener.bind((HOST, 0))
    listener.listen()
    port: int = listener.getsockname()[1]
    return port
