"""A Kafka connection for the Java client inside Spark. Connections speak librdkafka's language, as Airflow's do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidemark.environment import Connection
from tidemark.errors import WrongUse

_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
}
_JAAS: Final = "sasl.jaas.config"
_NO_COUNTERPART: Final = ("ssl.certificate.", "ssl.key.", "ssl.keystore.", "ssl.ca.certificate.stores")
_JAAS_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"})


def spark_options(connection: Connection) -> dict[str, str]:
    """The options of our Kafka source. Spark hides the values of options whose name says `secret` wherever it shows
    any, and would not do so for the name that Java has for the password."""
    return {
        f"kafka-secret.{name}" if name == _JAAS else f"kafka.{name}": value
        for name, value in java_settings(connection).items()
    }


def java_settings(connection: Connection) -> dict[str, str]:
    """Raise WrongUse for a kind of login, or a certificate, that the Java client would not get from here.

    The CA's certificates travel by themselves: executors need no file.
    """
    settings = {name: str(value) for name, value in connection.extra.items()}
    unknown = [name for name in settings if name.startswith(_NO_COUNTERPART)]
    if unknown:
        raise _unusable(connection, f"{unknown[0]}; client certificates are not supported")
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    login = _login(connection, settings) if protocol.startswith("SASL") else {}
    trust = _trust(connection, settings) if protocol.endswith("SSL") else {}
    names = ("sasl.mechanisms", "sasl.mechanism", "sasl.username", "sasl.password", "ssl.ca.location", "ssl.ca.pem")
    return {name: value for name, value in settings.items() if name not in names} | login | trust


def _login(connection: Connection, settings: Mapping[str, str]) -> dict[str, str]:
    mechanism = settings.get("sasl.mechanisms") or settings.get("sasl.mechanism") or "GSSAPI"
    if mechanism not in _LOGIN_MODULES:
        raise _unusable(connection, f"sasl.mechanism {mechanism}; wanted one of {', '.join(_LOGIN_MODULES)}")
    user, password = (settings.get(name, "").translate(_JAAS_ESCAPES) for name in ("sasl.username", "sasl.password"))
    jaas = f'{_LOGIN_MODULES[mechanism]} required username="{user}" password="{password}";'
    return {"sasl.mechanism": mechanism, _JAAS: jaas}


def _trust(connection: Connection, settings: Mapping[str, str]) -> dict[str, str]:
    certificates = settings.get("ssl.ca.pem") or _certificates_of(connection, settings.get("ssl.ca.location"))
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": certificates} if certificates else {}
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        trust["ssl.endpoint.identification.algorithm"] = ""
    return trust


def _certificates_of(connection: Connection, location: str | None) -> str | None:
    if location is None:
        return None
    try:
        return Path(location).read_text("ascii", "replace")
    except OSError as error:
        raise _unusable(connection, f"ssl.ca.location {location}, which cannot be read ({error.strerror})") from error


def _unusable(connection: Connection, found: str) -> WrongUse:
    return WrongUse(f"Cannot use the connection {connection.conn_id}: found {found}")
