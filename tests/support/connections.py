# SPDX-License-Identifier: Apache-2.0
"""Which chain a connection gets: a small evaluator of a listener's choices, for tests that state an
intent. It is written from what the plan documents, and shares no code with routing.
"""

import dataclasses
import ipaddress

from pilothouse.routing import accepting, plan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Connection:
    """A connection as it arrives at a listener."""

    server_name: str | None = None
    """What the client names in the handshake; None for nothing."""
    tls: bool = True
    client: str = "192.0.2.99"
    to: str = "198.51.100.1"


def chosen(listener: plan.Listener, connection: Connection) -> plan.Chain | None:
    """The chain that has the connection; None when it is closed."""
    chains = {one.name: one for one in listener.chains}
    assert len(chains) == len(listener.chains), "two chains have one name"
    assert [*chains] == sorted(chains), "chains are not in order"
    if not listener.choices:
        (only,) = listener.chains
        return only
    assert {one.chain for one in listener.choices} <= {*chains}, "a choice leads nowhere"
    for choice in listener.choices:
        if _takes(choice.match, connection):
            return chains[choice.chain]
    return None


def _takes(match: accepting.ChainMatch, connection: Connection) -> bool:
    name = connection.server_name.lower() if connection.tls and connection.server_name else None
    return (
        (not match.server_names or any(_is(one, name) for one in match.server_names))
        and (not match.unnamed or name is None)
        and (match.tls is None or match.tls is connection.tls)
        and (not match.sources or _in(match.sources, connection.client))
        and (not match.destinations or _in(match.destinations, connection.to))
    )


def _is(pattern: str, name: str | None) -> bool:
    if name is None:
        return False
    return name.endswith(pattern[1:]) if pattern.startswith("*.") else name == pattern


def _in(networks: tuple[str, ...], address: str) -> bool:
    return any(ipaddress.ip_address(address) in ipaddress.ip_network(one) for one in networks)
