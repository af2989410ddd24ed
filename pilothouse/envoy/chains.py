# SPDX-License-Identifier: Apache-2.0
"""Filter chains, and how a listener finds the one that a connection gets.

Envoy has two ways to find it. The match that a chain carries itself asks for destination address,
server name, protocol and source in an order of Envoy's own, and never goes back: a chain for a
smaller network hides all others, whatever they say about names; and two chains with one match make
the whole listener refused. The matcher beside the chains asks one question after the other in the
order in which they are written, and may name a chain often. That is what a plan says, so it is what
is used. It has another advantage: who gets a chain is no part of the chain, so its connections live
on when that changes.

A chain whose certificates are all missing, or that cannot check its clients, keeps its place: were
it left out, its connections would go to a chain behind it, which may ask for less. It closes them.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from pilothouse.api.envoy.config.listener.v3 import listener_components_pb2
from pilothouse.api.envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2
from pilothouse.envoy import http3, managers, names, server_tls, tcp_forwards, wire
from pilothouse.model import secrets
from pilothouse.routing import accepting, plan

_CLOSED: Final = listener_components_pb2.Filter(
    name=tcp_forwards.FILTER,
    typed_config=wire.packed(
        tcp_proxy_pb2.TcpProxy(stat_prefix="closed", cluster=names.UNRESOLVED)
    ),
)
"""Closes each connection before anything is read from it."""


def message(
    listener: plan.Listener, chain: plan.Chain, *, missing: secrets.Uses
) -> listener_components_pb2.FilterChain:
    """The filter chain.

    Args:
        listener: whose chain it is.
        chain: what to translate.
        missing: secrets that it must do without.

    Raises:
        TypeError: the chain is for datagrams, which have no chains in Envoy.
    """
    made = listener_components_pb2.FilterChain()
    if listener.choices:
        made.name = chain.name
    if chain.tls is not None:
        left = available(chain.tls, missing)
        if left is None:
            made.filters.append(_CLOSED)
            return made
        if listener.transport == "udp":
            made.transport_socket.CopyFrom(http3.transport_socket(left))
        else:
            made.transport_socket.CopyFrom(server_tls.transport_socket(left))
            made.transport_socket_connect_timeout.CopyFrom(server_tls.HANDSHAKE_TIMEOUT)
    match chain.serves:
        case plan.Http() as serves:
            made.filters.add(
                name="envoy.filters.network.http_connection_manager",
                typed_config=wire.packed(managers.manager(serves, chain.name, listener)),
            )
        case plan.Tcp(forward=forward):
            made.filters.append(tcp_forwards.reference(forward))
        case plan.Udp():
            raise TypeError(
                f"chain {chain.name} serves datagrams, and its listener has connections"
            )
    return made


def available(tls: accepting.ServerTls, missing: secrets.Uses) -> accepting.ServerTls | None:
    """TLS with the certificates that are there; None when it cannot be served at all."""
    without = missing.intersection(tls.secrets)
    if not without:
        return tls
    left = tuple(key for key in tls.certificates if key not in without)
    if not left or any(isinstance(key, secrets.AuthorityKey) for key in without):
        return None
    return dataclasses.replace(tls, certificates=left)


def closed(chain: plan.Chain, missing: secrets.Uses) -> bool:
    """True when a chain can only refuse connections."""
    return chain.tls is not None and available(chain.tls, missing) is None
