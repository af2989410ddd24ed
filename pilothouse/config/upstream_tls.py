# SPDX-License-Identifier: Apache-2.0
"""The rules of what a DestinationPolicy says of TLS that it can break by itself."""

from __future__ import annotations

import base64
import binascii
import re

from pilothouse.api.config.v1alpha1 import destination_policy_pb2
from pilothouse.config import checks, syntax

_MUTUAL = destination_policy_pb2.UpstreamTls.MODE_MUTUAL
_DISABLE = destination_policy_pb2.UpstreamTls.MODE_DISABLE
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_PEM = re.compile(rf"{_BEGIN}([A-Za-z0-9+/=\s]+){_END}")
_SEQUENCE = b"\x30"  # what every certificate is in DER
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s]+")


def check(where: str, section: destination_policy_pb2.UpstreamTls) -> checks.Found:
    """Every rule that the section breaks, in the order of its fields."""
    if section.mode == _DISABLE:
        for field, _ in section.ListFields():
            if field.name != "mode":
                needless = "must not be set when the mode is DISABLE"
                yield from checks.broken(f"{where}.{field.json_name}", needless)
        return
    yield from checks.required(f"{where}.sni", section.sni, syntax.host)
    if section.ca_certificates or not section.insecure_skip_verify:
        at = f"{where}.caCertificates"
        yield from checks.required(at, section.ca_certificates, _certificates)
    for index, name in enumerate(section.subject_alt_names):
        yield from checks.required(f"{where}.subjectAltNames[{index}]", name, _alt_name)
    if section.mode == _MUTUAL:
        at = f"{where}.clientCertificate"
        yield from checks.required(at, section.client_certificate, syntax.subdomain)
    elif section.client_certificate:
        needless = "must not be set unless the mode is MUTUAL"
        yield from checks.broken(f"{where}.clientCertificate", needless)
    if section.insecure_skip_verify and (section.ca_certificates or section.subject_alt_names):
        excluded = "must not be set together with caCertificates or subjectAltNames"
        yield from checks.broken(f"{where}.insecureSkipVerify", excluded)


def _certificates(value: str) -> str | None:
    """Certificates in PEM, and nothing that is none: a key that got there would be public."""
    for encoded in _PEM.findall(value):
        try:
            der = base64.b64decode("".join(encoded.split()), validate=True)
        except binascii.Error:
            return "must be PEM certificates: one of them is not base64"
        if not der.startswith(_SEQUENCE):
            return "must be PEM certificates: one of them is no certificate"
    if not _PEM.search(value) or "-----" in _PEM.sub("", value):
        return "must be PEM certificates, and nothing else"
    return None


def _alt_name(value: str) -> str | None:
    if _URI.fullmatch(value):
        return None
    return syntax.address(value)
