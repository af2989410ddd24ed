# SPDX-License-Identifier: Apache-2.0
"""TLS secrets, and the port through which they come.

A secret is never part of a mesh state, a plan or a log: those hold keys. The type redacts itself
wherever it is printed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from pilothouse.model import changes


class SecretKey(NamedTuple):
    """Names a TLS secret; sorts by namespace, name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """``NAMESPACE/NAME``."""
        return f"{self.namespace}/{self.name}"


SYSTEM = SecretKey("", "system")
"""No object's secret: the authorities that the system trusts on which discovery runs."""


class AuthorityKey(NamedTuple):
    """Names what a secret says of the certificates of others: who signs them."""

    secret: SecretKey


Uses = frozenset[SecretKey | AuthorityKey]
"""Things that secrets may hold: pairs, by the secret's key, and authorities."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TlsSecret:
    """What a secret holds for TLS, PEM, from one revision of it.

    That is a certificate chain and its key, the certificates of authorities, or both.
    """

    key: SecretKey
    certificate_chain: bytes = dataclasses.field(repr=False, default=b"")
    """The leaf first; empty together with ``private_key``."""
    private_key: bytes = dataclasses.field(repr=False, default=b"")
    authorities: bytes = dataclasses.field(repr=False, default=b"")
    """Certificates of whoever signs those of others; empty for none."""
    revocations: bytes = dataclasses.field(repr=False, default=b"")
    """Lists of what they revoked; empty for none."""

    @property
    def uses(self) -> Uses:
        """What it may be used for."""
        pair = {self.key} if self.certificate_chain else set()
        return frozenset(pair | ({AuthorityKey(self.key)} if self.authorities else set()))


class SecretSource(Protocol):
    """Where secrets come from; the promises are those of a ConfigStore."""

    name: str

    def secrets(self) -> Mapping[SecretKey, TlsSecret]:
        """The present usable secrets, in key order."""

    def subscribe(self, notify: Callable[[changes.Change], None]) -> Callable[[], None]:
        """Call ``notify`` after each change; the answer ends the subscription."""
