# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, made on the spot: self-signed, for given names."""

import datetime as dt
import ssl
import tempfile
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from pilothouse.model import secrets

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


class Pair(NamedTuple):
    """A certificate and its key, PEM."""

    certificate: str
    private_key: str

    def secret(self, key: secrets.SecretKey) -> secrets.TlsSecret:
        """It as a secret."""
        return secrets.TlsSecret(
            key=key,
            certificate_chain=self.certificate.encode(),
            private_key=self.private_key.encode(),
        )

    def server(self, *, clients: str = "") -> ssl.SSLContext:
        """A server that shows it; with `clients` (PEM) it wants one from them too."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(self.certificate + self.private_key)
            file.flush()
            context.load_cert_chain(file.name)
        if clients:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=clients)
        return context


def pem_key(key: Key) -> str:
    """PKCS#8 PEM of a key, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def make(*names: str, key: Key | None = None, expired: bool = False) -> Pair:
    """A certificate for DNS `names`, valid for a day, or expired for a day; P-256 unless told."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    day = dt.timedelta(days=1)
    begin, end = (now - 2 * day, now - day) if expired else (now - day, now + day)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), critical=False
        )
        .sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM).decode(), pem_key(key))
