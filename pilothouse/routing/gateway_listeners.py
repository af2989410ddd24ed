# SPDX-License-Identifier: Apache-2.0
"""The listeners of gateway proxies: what follows from a port for its chains."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from pilothouse.routing import accepting, gateway_ports, names, parsed, plan, routes, tracing
from pilothouse.routing.gateway_connections import Ranked

_QUIC = ("h3",)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A port of gateway proxies, wherever these bind others and however they trace."""

    port: int
    chains: tuple[plan.Chain, ...]
    address: str = ""
    """Empty for where the proxy binds."""
    choices: tuple[plan.Choice, ...] = ()
    udp: bool = False
    http3: bool = False
    client_address: accepting.ClientAddress = accepting.FROM_CONNECTION
    origins: plan.Origins = ()


def http(name: str, tls: accepting.ServerTls | None = None) -> plan.Chain:
    """A chain of HTTP whose routes have its name."""
    return plan.Chain(
        name=name,
        serves=plan.Http(route_configuration=name, edge=True, strip_port=True),
        tls=tls,
    )


def by_host(one: gateway_ports.OpenListener, chain: str) -> Iterable[Ranked]:
    """The choices of a listener that has one chain for all of its server names."""
    by_rank: dict[tuple[int, int], list[str]] = {}
    for host in one.hosts:
        by_rank.setdefault(gateway_ports.rank(host), []).append(host)
    for rank, found in sorted(by_rank.items()):
        named = tuple(host for host in found if host != "*")
        match = accepting.ChainMatch(server_names=named, tls=None if named else True)
        yield Ranked(rank, plan.Choice(match=match, chain=chain))


def unnamed(
    listeners: tuple[gateway_ports.OpenListener, ...], chains: dict[str, str]
) -> Iterable[plan.Choice]:
    """Who gets a client that names no server: whoever takes every name, else the first of HTTP.

    Args:
        listeners: Those of a port.
        chains: Chain by name of the listener, for those with HTTP.
    """
    if any("*" in one.hosts for one in listeners):
        return
    for chain in chains.values():
        yield plan.Choice(match=accepting.ChainMatch(unnamed=True, tls=True), chain=chain)
        return


def quic(port: Port) -> Port:
    """The port of UDP that serves HTTP/3 for a port of HTTPS."""
    name = names.gateway(port.port, udp=True)
    return Port(
        port=port.port,
        chains=tuple(
            dataclasses.replace(
                chain,
                name=name,
                # Nothing older than TLS 1.3 is spoken there, and its suites are fixed.
                tls=dataclasses.replace(
                    chain.tls, alpn=_QUIC, min_version="1.3", max_version=None, ciphers=()
                ),
            )
            for chain in port.chains
            if chain.tls is not None
        ),
        address=port.address,
        udp=True,
        client_address=port.client_address,
        origins=port.origins,
    )


def listeners(
    ports: tuple[Port, ...],
    bind_address: str,
    service: str,
    mesh: parsed.MeshTracing | None,
) -> tuple[plan.Listener, ...]:
    """The listeners of a gateway proxy, sorted by port, TCP first.

    Args:
        ports: What it opens.
        bind_address: Where its listeners bind that do not say.
        service: Its name in traces.
        mesh: The mesh's tracing; None for none.
    """
    traced = tracing.listener_tracing(mesh, service)
    return tuple(_listener(port, bind_address, traced) for port in ports)


def _listener(port: Port, address: str, traced: plan.Tracing | None) -> plan.Listener:
    return plan.Listener(
        name=names.gateway(port.port, udp=port.udp),
        direction=plan.Direction.INBOUND,
        address=port.address or address,
        port=port.port,
        chains=tuple(_traced(chain, traced) for chain in port.chains),
        choices=port.choices,
        transport="udp" if port.udp else "tcp",
        http3=port.http3,
        client_address=port.client_address,
        origins=routes.merge_origins(port.origins, traced.origins if traced else ()),
    )


def _traced(chain: plan.Chain, traced: plan.Tracing | None) -> plan.Chain:
    if traced is None or not isinstance(chain.serves, plan.Http):
        return chain
    return dataclasses.replace(chain, serves=dataclasses.replace(chain.serves, tracing=traced))
