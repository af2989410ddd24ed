# SPDX-License-Identifier: Apache-2.0
"""Listeners: a port, how its connections are told apart, and the chains behind it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

from pilothouse.api.envoy.config.core.v3 import address_pb2, base_pb2
from pilothouse.api.envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from pilothouse.api.envoy.extensions.filters.listener.proxy_protocol.v3 import proxy_protocol_pb2
from pilothouse.api.envoy.extensions.filters.listener.tls_inspector.v3 import tls_inspector_pb2
from pilothouse.envoy import chains, choices, http3, names, udp, wire
from pilothouse.model import keys, secrets
from pilothouse.routing import plan
from pilothouse.xds import resources, types

_DIRECTIONS: Final = {
    plan.Direction.INBOUND: base_pb2.INBOUND,
    plan.Direction.OUTBOUND: base_pb2.OUTBOUND,
}
_PROXY_PROTOCOL: Final = listener_components_pb2.ListenerFilter(
    name="envoy.filters.listener.proxy_protocol",
    typed_config=wire.packed(proxy_protocol_pb2.ProxyProtocol()),
)
_TLS_INSPECTOR: Final = listener_components_pb2.ListenerFilter(
    name="envoy.filters.listener.tls_inspector",
    typed_config=wire.packed(tls_inspector_pb2.TlsInspector()),
)
_NONE: Final[secrets.Uses] = frozenset()


def message(listener: plan.Listener, *, missing: secrets.Uses = _NONE) -> listener_pb2.Listener:
    """The listener, under its own name; ``missing`` are secrets that it must do without."""
    made = listener_pb2.Listener(
        name=listener.name,
        address=wire.address(listener.address, listener.port),
        traffic_direction=_DIRECTIONS[listener.direction],
    )
    if listener.transport == "udp":
        made.address.socket_address.protocol = address_pb2.SocketAddress.UDP
        made.udp_listener_config.SetInParent()
        datagrams = [one for one in listener.chains if isinstance(one.serves, plan.Udp)]
        if datagrams:
            made.listener_filters.extend(map(udp.proxy, datagrams))
            return made
        http3.listen(made)
    if listener.client_address.proxy_protocol:
        made.listener_filters.append(_PROXY_PROTOCOL)
    if listener.transport == "tcp" and _inspected(listener):
        made.listener_filters.append(_TLS_INSPECTOR)
    made.filter_chains.extend(
        chains.message(listener, one, missing=missing) for one in listener.chains
    )
    if listener.choices:
        made.filter_chain_matcher.CopyFrom(choices.matcher(listener.choices))
    return made


def _inspected(listener: plan.Listener) -> bool:
    return choices.inspects(listener.choices) or any(one.tls for one in listener.chains)


@dataclasses.dataclass(frozen=True, slots=True)
class Served:
    """A listener, and what it must do without."""

    listener: plan.Listener
    missing: secrets.Uses = _NONE

    def resource(self) -> resources.Resource:
        """The listener as a resource for LDS; it refers to what its chains cannot do without."""
        listener, missing = self.listener, self.missing
        origins: set[keys.ObjectKey] = {*listener.origins}
        for chain in listener.chains:
            if isinstance(chain.serves, plan.Http) and chain.serves.tracing is not None:
                origins.update(chain.serves.tracing.origins)
        found = {one for chain in listener.chains for one in _references(chain, missing)}
        return resources.Resource.of(
            types.LISTENER.type_url,
            listener.name,
            wire.encode(message(listener, missing=missing)),
            references=tuple(sorted(found)),
            origins=tuple(sorted(origins)),
        )


def served(
    listener: plan.Listener, *, here: frozenset[str], missing: secrets.Uses
) -> Served | None:
    """What is served of a listener; None when it could only refuse connections.

    Args:
        listener: as planned.
        here: route configurations that ignore ports where they are asked to. Chains that use them
            leave the Host header as it is.
        missing: secrets that do not exist.
    """
    without = missing.intersection(secrets_of(listener))
    if without and all(chains.closed(one, without) for one in listener.chains):
        return None
    left = tuple(_keeping_port(one, here) for one in listener.chains)
    same = all(one is other for one, other in zip(left, listener.chains, strict=True))
    return Served(listener if same else dataclasses.replace(listener, chains=left), without)


def _keeping_port(chain: plan.Chain, here: frozenset[str]) -> plan.Chain:
    serves = chain.serves
    if not isinstance(serves, plan.Http) or not serves.strip_port:
        return chain
    if serves.route_configuration not in here:
        return chain
    return dataclasses.replace(chain, serves=dataclasses.replace(serves, strip_port=False))


def port_ignored(listener: plan.Listener) -> Iterator[str]:
    """The route configurations in whose matching the port of a host takes no part."""
    for chain in listener.chains:
        if isinstance(chain.serves, plan.Http) and chain.serves.strip_port:
            yield chain.serves.route_configuration


def secrets_of(listener: plan.Listener) -> Iterator[secrets.SecretKey | secrets.AuthorityKey]:
    """All that its chains need."""
    for chain in listener.chains:
        yield from chain.tls.secrets if chain.tls else ()


def _references(chain: plan.Chain, missing: secrets.Uses) -> Iterator[tuple[str, str]]:
    if chains.closed(chain, missing):
        return
    match chain.serves:
        case plan.Http(route_configuration=routes, tracing=tracing):
            yield (types.ROUTE.type_url, routes)
            if tracing is not None:
                yield (types.CLUSTER.type_url, names.cluster(tracing.collector))
        case plan.Tcp(forward=forward):
            yield (types.EXTENSION.type_url, forward)
        case plan.Udp(cluster=cluster):
            if cluster is not None:
                yield (types.CLUSTER.type_url, names.cluster(cluster))
    for key in chain.tls.secrets if chain.tls else ():
        if key not in missing:
            yield (types.SECRET.type_url, names.usable(key))
