# SPDX-License-Identifier: Apache-2.0
"""Rules of TLS that both sides of a proxy share."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence

from pilothouse.config import checks, syntax

_MAX_HASHES = 100
_SHA256 = 32
_HEX = re.compile(r"[0-9A-Fa-f]{64}|[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){31}")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s]+")


def hashes(where: str, values: Sequence[str], rule: syntax.Rule) -> checks.Found:
    """A list of hashes, each once."""
    if len(values) > _MAX_HASHES:
        many = f"must have at most {_MAX_HASHES} entries, has {len(values)}"
        yield from checks.broken(where, many)
    seen: dict[object, str] = {}
    for index, value in enumerate(values):
        yield from checks.required(f"{where}[{index}]", value, rule)
        yield from checks.unique(seen, f"{where}[{index}]", value, what="hash")


def key_hash(value: str) -> str | None:
    """The SHA-256 of a public key."""
    try:
        right = len(base64.b64decode(value, validate=True)) == _SHA256
    except ValueError:  # of bad base64, or of letters beyond ASCII
        right = False
    return None if right else f"must be a SHA-256 in base64, is {value!r}"


def certificate_hash(value: str) -> str | None:
    """The SHA-256 of a certificate."""
    return None if _HEX.fullmatch(value) else f"must be a SHA-256 in hex, is {value!r}"


_SUITES = (
    *(
        f"ECDHE-{kind}-{rest}"
        for kind in ("ECDSA", "RSA")
        for rest in (
            "AES128-GCM-SHA256",
            "AES256-GCM-SHA384",
            "CHACHA20-POLY1305",
            "AES128-SHA",
            "AES256-SHA",
        )
    ),
    "AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-SHA",
    "AES256-SHA",
)
"""Those of TLS 1.2 and with certificates that Envoy's library (BoringSSL) has."""


def cipher_suites(where: str, suites: Sequence[str]) -> checks.Found:
    """A list of cipher suites, each once."""
    seen: dict[object, str] = {}
    for index, suite in enumerate(suites):
        at = f"{where}[{index}]"
        yield from checks.required(at, suite, _cipher_suite)
        yield from checks.unique(seen, at, suite, what="cipher suite")


def _cipher_suite(value: str) -> str | None:
    if value in _SUITES:
        return None
    return f"must be one of {', '.join(_SUITES)}, is {value!r}"


def alt_name(value: str) -> str | None:
    """A URI, a DNS name or an IP address that a certificate is for."""
    if _URI.fullmatch(value):
        return None
    return syntax.address(value)
