# SPDX-License-Identifier: Apache-2.0
"""What the gate says of a resource."""

from __future__ import annotations

import dataclasses

from pilothouse.model import keys


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Fault:
    """Why a client would refuse a resource."""

    type_url: str
    name: str
    """Of the resource."""
    path: str
    """The field, as in ``virtual_hosts[0].routes[2].match``; empty for the whole resource."""
    rule: str
    """What must hold, for people."""
    origins: tuple[keys.ObjectKey, ...] = ()
    """The config objects that the resource comes from, sorted."""

    def __str__(self) -> str:
        """Resource, field and rule; not the value, which may be a secret."""
        kind = self.type_url.rpartition(".")[2]
        where = f" at {self.path}" if self.path else ""
        return f"{kind} {self.name}{where}: {self.rule}"


@dataclasses.dataclass(frozen=True, slots=True)
class Broken:
    """A rule that a message breaks: field and rule, before anybody knows whose message it is."""

    path: str
    rule: str

    def below(self, prefix: str) -> Broken:
        """The same, seen from the message that holds this one in a field."""
        if not self.path:
            return Broken(prefix, self.rule)
        return Broken(f"{prefix}.{self.path}", self.rule)
