# SPDX-License-Identifier: Apache-2.0
"""Certificate authorities for tests: what they sign, and what they revoke."""

import base64
import dataclasses
import datetime as dt
import hashlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support import certificates

_DAY = dt.timedelta(days=1)


@dataclasses.dataclass(frozen=True, slots=True)
class Authority:
    """One that signs."""

    key: ec.EllipticCurvePrivateKey
    itself: x509.Certificate

    @property
    def certificate(self) -> str:
        """Its certificate, PEM."""
        return self.itself.public_bytes(serialization.Encoding.PEM).decode()

    def sign(self, *names: str) -> certificates.Pair:
        """A certificate for DNS names."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = (
            _builder(names[0], self.itself.subject, key)
            .add_extension(
                x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), critical=False
            )
            .sign(self.key, hashes.SHA256())
        )
        return certificates.Pair(
            made.public_bytes(serialization.Encoding.PEM).decode(), certificates.pem_key(key)
        )

    def revoke(self, *pairs: certificates.Pair) -> str:
        """The list (CRL) of these certificates, PEM."""
        now = dt.datetime.now(dt.UTC)
        made = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.itself.subject)
            .last_update(now - _DAY)
            .next_update(now + _DAY)
        )
        for pair in pairs:
            serial = x509.load_pem_x509_certificate(pair.certificate.encode()).serial_number
            revoked = x509.RevokedCertificateBuilder().serial_number(serial)
            made = made.add_revoked_certificate(revoked.revocation_date(now - _DAY).build())
        signed = made.sign(self.key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM).decode()


def authority(name: str) -> Authority:
    """A new authority, valid for a day."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        _builder(name, subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=False,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .sign(key, hashes.SHA256())
    )
    return Authority(key, made)


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
    )


def key_hash(pair: certificates.Pair) -> str:
    """SHA-256 of the public key (SPKI), base64."""
    found = x509.load_pem_x509_certificate(pair.certificate.encode()).public_key()
    der = found.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return base64.b64encode(hashlib.sha256(der).digest()).decode()


def certificate_hash(pair: certificates.Pair) -> str:
    """SHA-256 of the certificate, hex with colons and upper case as OpenSSL prints it."""
    found = x509.load_pem_x509_certificate(pair.certificate.encode())
    return found.fingerprint(hashes.SHA256()).hex(":").upper()
