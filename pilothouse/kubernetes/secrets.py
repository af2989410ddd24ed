# SPDX-License-Identifier: Apache-2.0
"""Secrets to what TLS needs of them, checked before any proxy sees it.

A secret of type ``kubernetes.io/tls`` has a certificate and its key (``tls.crt``, ``tls.key``). It
may have the certificates of authorities beside them, which sign those of clients (``ca.crt``), and
lists of what they revoked (``ca.crl``); so may an ``Opaque`` one without a pair. What is there and
empty is not there.

A pair that a proxy would refuse must not reach it: a listener whose certificate is refused does not
open. So the PEM must parse, the key must be that of the leaf, which comes first, and of a kind that
Envoy takes. An expired certificate is served: that is for its owner to decide, and for clients to
see. A secret with something wrong in it is not used at all: without its list of revocations more
would be let in than is meant. No message here tells anything of a secret's content.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from pilothouse.config import documents, objects
from pilothouse.kubernetes import fields, manifests
from pilothouse.model import secrets

TYPE = "kubernetes.io/tls"
CERTIFICATE = "tls.crt"
PRIVATE_KEY = "tls.key"
AUTHORITIES = "ca.crt"
REVOCATIONS = "ca.crl"

_UNTYPED = ("Opaque", None)

_MIN_RSA_BITS = 2048
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_BLANKS = re.compile(r"\s+")
_LIST = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)

_PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def read(
    document: documents.RawDocument,
) -> tuple[secrets.TlsSecret | None, tuple[objects.Problem, ...]]:
    """Read a secret.

    Returns:
        The secret, and no problem; or None, and a problem for each violation. (None, ()) for every
        other object, secrets that are not for TLS included.
    """
    if manifests.known_kind(document) != "Secret":
        return None, ()
    root = fields.Field(document.manifest)
    paired = document.manifest.get("type") == TYPE
    if not paired and not (_is_untyped(document) and _has(root, AUTHORITIES)):
        return None, ()
    head = fields.head(root)
    chain = _value(root, CERTIFICATE, required=True) if paired else b""
    private = _value(root, PRIVATE_KEY, required=True) if paired else b""
    if paired and chain is not None and private is not None:
        _check(root["data"], chain, private)
    authorities, revocations = _value(root, AUTHORITIES) or b"", _value(root, REVOCATIONS) or b""
    if authorities:
        _certificates(root["data"].entry(AUTHORITIES), authorities)
    if revocations:
        _revocations(root["data"].entry(REVOCATIONS), revocations)
    if root.violations or chain is None or private is None:
        return None, fields.problems(document, root, manifests.key_of(document))
    if not paired and not authorities:
        return None, ()
    return secrets.TlsSecret(
        key=secrets.SecretKey(head.key.namespace, head.key.name),
        certificate_chain=chain,
        private_key=private,
        authorities=authorities,
        revocations=revocations if authorities else b"",
    ), ()


def _is_untyped(document: documents.RawDocument) -> bool:
    return document.manifest.get("type") in _UNTYPED


def _has(root: fields.Field, name: str) -> bool:
    holders = (root[source].value for source in ("stringData", "data"))
    return any(isinstance(holder, Mapping) and name in holder for holder in holders)


def _value(root: fields.Field, name: str, *, required: bool = False) -> bytes | None:
    """The bytes below a name, from ``stringData`` or else from ``data``.

    None if there are none, which is noted where they are ``required``, or they cannot be read.
    """
    for source in ("stringData", "data"):
        holder = root[source].value
        value = holder.get(name) if isinstance(holder, Mapping) else None
        if value is None:
            continue
        field = root[source].entry(name)
        if not isinstance(value, str):
            field.refuse("must be a string")
        elif source == "stringData":
            return value.encode()
        else:
            try:
                return base64.b64decode(_BLANKS.sub("", value), validate=True)
            except binascii.Error:
                field.refuse("must be base64")
        return None
    if required:
        root["data"].entry(name).refuse("is required")
    return None


def _revocations(field: fields.Field, lists: bytes) -> None:
    found = _LIST.findall(lists)
    try:
        for one in found:
            x509.load_pem_x509_crl(one)
    except ValueError:
        found = []
    if not found:
        field.refuse("must be PEM lists of revoked certificates")


def _check(data: fields.Field, chain: bytes, private: bytes) -> None:
    certificates = _certificates(data.entry(CERTIFICATE), chain)
    key = _private_key(data.entry(PRIVATE_KEY), private)
    if not certificates or key is None:
        return
    own = _encoded(key.public_key())
    if _public(certificates[0]) == own:
        return
    if any(_public(certificate) == own for certificate in certificates[1:]):
        data.entry(CERTIFICATE).refuse("the certificate of the key must come first")
    else:
        data.entry(PRIVATE_KEY).refuse("is not the key of the certificate")


def _certificates(field: fields.Field, chain: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(chain)
    except ValueError:
        field.refuse("must be PEM certificates")
        return []


def _private_key(field: fields.Field, private: bytes) -> _PrivateKey | None:
    try:
        key = serialization.load_pem_private_key(private, password=None)
    except TypeError:
        field.refuse("must not be encrypted")
        return None
    except (ValueError, UnsupportedAlgorithm):
        field.refuse("must be a private key in PEM")
        return None
    match key:
        case rsa.RSAPrivateKey() if key.key_size >= _MIN_RSA_BITS:
            return key
        case ec.EllipticCurvePrivateKey() if isinstance(key.curve, _CURVES):
            return key
        case _:
            field.refuse(f"must be RSA of at least {_MIN_RSA_BITS} bits, or ECDSA on a NIST curve")
            return None


def _public(certificate: x509.Certificate) -> bytes | None:
    try:
        return _encoded(certificate.public_key())
    except (ValueError, UnsupportedAlgorithm):  # of a kind unknown here, so not that of our key
        return None


def _encoded(key: object) -> bytes:
    if not isinstance(key, (rsa.RSAPublicKey, ec.EllipticCurvePublicKey)):
        return b""
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
