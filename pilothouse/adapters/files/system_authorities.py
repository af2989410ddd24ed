# SPDX-License-Identifier: Apache-2.0
"""The authorities that this machine trusts, beside the secrets of another source."""

from __future__ import annotations

import pathlib
import re
import ssl
from collections.abc import Callable, Mapping
from typing import Final

from pilothouse.model import changes, secrets

PLACES: Final = (
    pathlib.Path("/etc/ssl/certs/ca-certificates.crt"),  # Debian, Alpine, Arch
    pathlib.Path("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),  # Fedora, RHEL
    pathlib.Path("/etc/ssl/ca-bundle.pem"),  # SUSE
    pathlib.Path("/etc/ssl/cert.pem"),  # BSD, macOS
)
"""Where systems have them."""

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)


def read(path: pathlib.Path | None) -> bytes:
    """The certificates in a file, PEM; those that nobody could read are left out.

    Args:
        path: The file; None for the first of `PLACES` that is there, if any.

    Raises:
        OSError: the file cannot be read.
    """
    if path is None:
        path = next((place for place in PLACES if place.is_file()), None)
    if path is None:
        return b""
    # The judge is OpenSSL, not a stricter reader: old authorities have odd serial numbers.
    judge = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return b"".join(one for one in _CERTIFICATE.findall(path.read_bytes()) if _is_right(judge, one))


def _is_right(judge: ssl.SSLContext, certificate: bytes) -> bool:
    try:
        judge.load_verify_locations(cadata=certificate.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError):
        return False
    return True


class WithSystem:
    """Implements `pilothouse.model.secrets.SecretSource`: one more secret than another source.

    It is `pilothouse.model.secrets.SYSTEM`, and it never changes.
    """

    def __init__(self, source: secrets.SecretSource, authorities: bytes) -> None:
        """Add authorities (PEM) to a source, if there are any."""
        self.name = source.name
        self._source = source
        self._system = (
            {secrets.SYSTEM: secrets.TlsSecret(key=secrets.SYSTEM, authorities=authorities)}
            if authorities
            else {}
        )

    def secrets(self) -> Mapping[secrets.SecretKey, secrets.TlsSecret]:
        """The present usable secrets, in key order."""
        return {**self._system, **self._source.secrets()}  # its namespace is empty: it comes first

    def subscribe(self, notify: Callable[[changes.Change], None]) -> Callable[[], None]:
        """Call ``notify`` after each change of the other source."""
        return self._source.subscribe(notify)
