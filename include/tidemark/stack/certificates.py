"""A certificate for this machine's services, and the authority that their clients trust."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tidemark.stack.files import write_whole
from tidemark.stack.ports import HOST

_YEARS = timedelta(days=3650)


def provide_certificates(ca_file: Path, server_file: Path) -> None:
    """Made once. The server's file has its key as well; nobody keeps the authority's."""
    if server_file.exists():
        return
    ca_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority, server = _name("tidemark stack"), _name(HOST)
    ca = (
        _certificate(authority, authority, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, SHA256())
    )
    certificate = (
        _certificate(server, authority, server_key)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), critical=False)
        .sign(ca_key, SHA256())
    )
    key = server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_whole(ca_file, ca.public_bytes(Encoding.PEM).decode())
    write_whole(server_file, (key + certificate.public_bytes(Encoding.PEM)).decode())


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _YEARS)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
