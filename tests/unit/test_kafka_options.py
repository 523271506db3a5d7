from pathlib import Path

import pytest

from tidemark.consume.spark import Source
from tidemark.environment import Connection
from tidemark.errors import WrongUse
from tidemark.kafka_options import java_settings, spark_options

SCRAM = {
    "bootstrap.servers": "h:1",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "u",
    "sasl.password": "hunter2",
}


def kafka(**extra: object) -> Connection:
    return Connection(conn_id="kafka_main", extra={name.replace("_", "."): value for name, value in extra.items()})


def test_settings_that_both_clients_have_are_handed_on() -> None:
    found = java_settings(kafka(bootstrap_servers="h:1", fetch_max_bytes=7))
    assert found == {"bootstrap.servers": "h:1", "fetch.max.bytes": "7"}


def test_a_login_and_a_ca_file_become_what_java_has_for_them(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("Ümlauts in comments\n-----BEGIN CERTIFICATE-----", "utf-8")
    found = java_settings(Connection(conn_id="kafka_main", extra={**SCRAM, "ssl.ca.location": str(ca)}))
    assert found.pop("ssl.truststore.certificates").endswith("-----BEGIN CERTIFICATE-----")
    assert found == {
        "bootstrap.servers": "h:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="u" password="hunter2";',
        "ssl.truststore.type": "PEM",
    }


def test_a_broker_without_a_host_name_check_is_told_so_in_java_words() -> None:
    settings = kafka(security_protocol="ssl", ssl_endpoint_identification_algorithm="none", ssl_ca_pem="PEM")
    assert java_settings(settings) == {
        "security.protocol": "ssl",
        "ssl.endpoint.identification.algorithm": "",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "PEM",
    }


def test_spark_hides_the_option_that_holds_the_password() -> None:
    options = spark_options(Connection(conn_id="kafka_main", extra=SCRAM))
    assert [name for name, value in options.items() if "hunter2" in value] == ["kafka-secret.sasl.jaas.config"]
    assert "hunter2" not in repr(Source(topic="t", options=options))


@pytest.mark.parametrize(
    ("extra", "complaint"),
    [
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism GSSAPI; wanted one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"sasl.mechanism": ""}, "found sasl.mechanism GSSAPI"),
        ({"ssl.ca.location": "/none/ca.pem"}, r"ssl.ca.location /none/ca.pem, which cannot be read \(No such file"),
        ({"ssl.key.location": "k"}, "found ssl.key.location; client certificates are not supported"),
    ],
)
def test_what_java_would_not_get_is_refused(extra: dict[str, str], complaint: str) -> None:
    with pytest.raises(WrongUse, match=f"Cannot use the connection kafka_main: .*{complaint}") as refused:
        java_settings(Connection(conn_id="kafka_main", extra={**SCRAM, **extra}))
    assert "hunter2" not in str(refused.value)
