# SPDX-License-Identifier: Apache-2.0
"""How a listener accepts connections: which chain takes one, and how TLS is terminated."""

from __future__ import annotations

import dataclasses
from typing import Literal

from pilothouse.model import secrets as registry

TlsVersion = Literal["1.0", "1.1", "1.2", "1.3"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChainMatch:
    """Which connections a chain takes: all that is set must hold."""

    server_names: tuple[str, ...] = ()
    """Lower case, sorted; ``*.example.com`` for any number of labels. With some of them the
    connection must be TLS."""
    destinations: tuple[str, ...] = ()
    """Networks (``10.1.0.0/16``) one of which holds the address connected to, sorted."""
    sources: tuple[str, ...] = ()
    """Networks one of which holds the client's address, sorted."""
    unnamed: bool = False
    """True: the client names no server."""
    tls: bool | None = None
    """True for connections that begin with a TLS handshake, False for others."""


ANY = ChainMatch()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertificates:
    """Which certificates of clients are accepted."""

    authority: registry.SecretKey
    """Whose ``ca.crt`` signs them; while it is missing nobody is let in."""
    required: bool = True
    subject_alt_names: tuple[str, ...] = ()
    """Sorted; empty for any."""
    public_key_hashes: tuple[str, ...] = ()
    """SHA-256 of SPKI in base64, sorted; with the next empty too for any."""
    certificate_hashes: tuple[str, ...] = ()
    """SHA-256 of certificates in hex, lower case without colons, sorted; either list will do."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """How TLS is terminated."""

    certificates: tuple[registry.SecretKey, ...]
    """In the order of the MeshGateway, the first is the default; at least one."""
    clients: ClientCertificates | None = None
    """None: no certificate is asked for."""
    min_version: TlsVersion = "1.2"
    max_version: TlsVersion | None = None
    """None means the newest."""
    ciphers: tuple[str, ...] = ()
    """Best first; empty for the proxy's own."""
    alpn: tuple[str, ...] = ()
    """Protocols offered inside, best first; empty for none."""

    @property
    def secrets(self) -> tuple[registry.SecretKey | registry.AuthorityKey, ...]:
        """All that it needs of secrets, in order of use."""
        signers = (registry.AuthorityKey(self.clients.authority),) if self.clients else ()
        return (*self.certificates, *signers)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientAddress:
    """Where the address of a client is taken from."""

    trusted_hops: int = 0
    """Proxies in front that are trusted to have written ``X-Forwarded-For``."""
    proxy_protocol: bool = False
    """True: each connection must begin with a PROXY protocol header."""


FROM_CONNECTION = ClientAddress()
"""It is the address that the connection comes from."""
