# SPDX-License-Identifier: Apache-2.0
"""Mapped ports: addresses of its own at which a sidecar takes connections for a port of a service.

Written ``ADDRESS:PORT=NAME.NAMESPACE:PORT``, with ``/udp`` behind it for UDP.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

from pilothouse.model import keys

_FORM: Final = re.compile(
    r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<v4>[0-9.]+)):(?P<port>[0-9]{1,5})"
    r"=(?P<name>[a-z0-9]([-a-z0-9]*[a-z0-9])?)\.(?P<namespace>[a-z0-9]([-a-z0-9]*[a-z0-9])?)"
    r":(?P<target>[0-9]{1,5})(?:(?P<udp>/udp)|/tcp)?",
    re.ASCII,
)


class MappedPort(NamedTuple):
    """A port of a service, and where a sidecar takes connections for it; sorts by address."""

    address: str
    """IP literal."""
    port: int
    udp: bool
    service: keys.ServiceKey
    target: int
    """Number of the service's port."""

    @classmethod
    def parse(cls, text: str) -> MappedPort:
        """Read one; ValueError says how one is written."""
        found = _FORM.fullmatch(text)
        if found is None:
            msg = f"{text!r} must be ADDRESS:PORT=NAME.NAMESPACE:PORT, with /udp behind it for UDP"
            raise ValueError(msg)
        try:
            address = str(ipaddress.ip_address(found["v6"] or found["v4"]))
        except ValueError as error:
            raise ValueError(f"{text!r} must begin with an IP address") from error
        port, target = int(found["port"]), int(found["target"])
        if not (0 < port <= 65535 and 0 < target <= 65535):
            raise ValueError(f"{text!r} must have ports from 1 to 65535")
        service = keys.ServiceKey(found["namespace"], found["name"])
        return cls(address, port, found["udp"] is not None, service, target)

    @property
    def place(self) -> str:
        """``ADDRESS:PORT``, with ``/udp`` behind it for UDP."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}{'/udp' if self.udp else ''}"

    def __str__(self) -> str:
        """As it is written."""
        udp = "/udp" if self.udp else ""
        name = f"{self.service.name}.{self.service.namespace}"
        return f"{self.place.removesuffix('/udp')}={name}:{self.target}{udp}"


def parse_all(texts: tuple[str, ...]) -> tuple[MappedPort, ...]:
    """Read several, sorted; ValueError also when two are at one place."""
    found: dict[str, MappedPort] = {}
    for text in texts:
        one = MappedPort.parse(text)
        if found.setdefault(one.place, one) != one:
            raise ValueError(f"{one.place} is mapped twice: to {found[one.place]} and {one}")
    return tuple(sorted(found.values()))
