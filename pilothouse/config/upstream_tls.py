# SPDX-License-Identifier: Apache-2.0
"""The rules of what a DestinationPolicy says of TLS that it can break by itself."""

from __future__ import annotations

import base64
import binascii
import re

from pilothouse.api.config.v1alpha1 import upstream_tls_pb2
from pilothouse.config import checks, syntax, tls

_MUTUAL = upstream_tls_pb2.UpstreamTls.MODE_MUTUAL
_DISABLE = upstream_tls_pb2.UpstreamTls.MODE_DISABLE
_TLS_1_3 = upstream_tls_pb2.UpstreamTls.VERSION_TLS_1_3
_SEQUENCE = b"\x30"  # what every certificate, and every list of revoked ones, is in DER


def check(where: str, section: upstream_tls_pb2.UpstreamTls) -> checks.Found:
    """Every rule that the section breaks, in the order of its fields."""
    if section.mode == _DISABLE:
        for field, _ in section.ListFields():
            if field.name != "mode":
                needless = "must not be set when the mode is DISABLE"
                yield from checks.broken(f"{where}.{field.json_name}", needless)
        return
    yield from checks.required(f"{where}.sni", section.sni, syntax.host)
    yield from _trust(where, section)
    if section.mode == _MUTUAL:
        at = f"{where}.clientCertificate"
        yield from checks.required(at, section.client_certificate, syntax.subdomain)
    elif section.client_certificate:
        needless = "must not be set unless the mode is MUTUAL"
        yield from checks.broken(f"{where}.clientCertificate", needless)
    excluded = [_json_name(field) for field in _TRUST if getattr(section, field)]
    if section.insecure_skip_verify and excluded:
        text = f"must not be set together with {', '.join(excluded)}"
        yield from checks.broken(f"{where}.insecureSkipVerify", text)
    yield from _versions(where, section)
    if section.HasField("tunnel"):
        at = f"{where}.tunnel"
        yield from checks.required(f"{at}.ipAddress", section.tunnel.ip_address, syntax.ip_address)
        yield from checks.required_port(f"{at}.port", section.tunnel.port, {})


def _trust(where: str, section: upstream_tls_pb2.UpstreamTls) -> checks.Found:
    """What an endpoint's certificate must be."""
    hashes = section.public_key_hashes or section.certificate_hashes
    elsewhere = section.ca_secret or section.system_authorities
    if section.ca_certificates or not (section.insecure_skip_verify or hashes or elsewhere):
        at = f"{where}.caCertificates"
        yield from checks.required(at, section.ca_certificates, _certificates)
    for index, name in enumerate(section.subject_alt_names):
        yield from checks.required(f"{where}.subjectAltNames[{index}]", name, tls.alt_name)
    yield from tls.hashes(f"{where}.publicKeyHashes", section.public_key_hashes, tls.key_hash)
    yield from tls.hashes(
        f"{where}.certificateHashes", section.certificate_hashes, tls.certificate_hash
    )
    yield from checks.optional(f"{where}.revocationLists", section.revocation_lists, _revocations)
    yield from checks.optional(f"{where}.caSecret", section.ca_secret, syntax.subdomain)
    if elsewhere:
        others = (*_INLINE, "ca_secret") if section.system_authorities else _INLINE
        if doubled := [_json_name(field) for field in others if getattr(section, field)]:
            field = "systemAuthorities" if section.system_authorities else "caSecret"
            text = f"must not be set together with {', '.join(doubled)}"
            yield from checks.broken(f"{where}.{field}", text)
    elif hashes and not (section.ca_certificates or section.insecure_skip_verify):
        for field in ("subject_alt_names", "revocation_lists"):  # else it is they that are missing
            if getattr(section, field):
                needless = "must not be set unless it is said who signs"
                yield from checks.broken(f"{where}.{_json_name(field)}", needless)


_INLINE = ("ca_certificates", "revocation_lists")
_TRUST = (
    "ca_certificates",
    "subject_alt_names",
    "public_key_hashes",
    "certificate_hashes",
    "revocation_lists",
    "ca_secret",
    "system_authorities",
)


def _json_name(field: str) -> str:
    return upstream_tls_pb2.UpstreamTls.DESCRIPTOR.fields_by_name[field].json_name


def _versions(where: str, section: upstream_tls_pb2.UpstreamTls) -> checks.Found:
    if section.max_version and section.max_version < section.min_version:
        older = "must not be older than minVersion"
        yield from checks.broken(f"{where}.maxVersion", older)
    if section.cipher_suites and section.min_version == _TLS_1_3:
        fixed = "must not be set when minVersion is TLS_1_3, whose suites are fixed"
        yield from checks.broken(f"{where}.cipherSuites", fixed)
    yield from tls.cipher_suites(f"{where}.cipherSuites", section.cipher_suites)


def _certificates(value: str) -> str | None:
    """Certificates in PEM, and nothing that is none: a key that got there would be public."""
    return _pem(value, "CERTIFICATE", plural="certificates", singular="certificate")


def _revocations(value: str) -> str | None:
    return _pem(value, "X509 CRL", plural="lists", singular="list")


def _pem(value: str, label: str, *, plural: str, singular: str) -> str | None:
    block = re.compile(rf"-----BEGIN {label}-----([A-Za-z0-9+/=\s]+)-----END {label}-----")
    for encoded in block.findall(value):
        try:
            der = base64.b64decode("".join(encoded.split()), validate=True)
        except binascii.Error:
            return f"must be PEM {plural}: one of them is not base64"
        if not der.startswith(_SEQUENCE):
            return f"must be PEM {plural}: one of them is no {singular}"
    if not block.search(value) or "-----" in block.sub("", value):
        return f"must be PEM {plural}, and nothing else"
    return None
