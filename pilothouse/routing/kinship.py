# SPDX-License-Identifier: Apache-2.0
"""Which proxies are alike: all about a proxy that its plan depends on, and nothing else.

Proxies of one kind have one plan, so a change is planned once for each kind and not for each proxy.
A kind is found from what is known at the proxy's own address and in its namespace, which a change
elsewhere leaves as it is; so whoever remembers the function's arguments need not look again. Equal
kinds are one object, for whoever looks them up by identity.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar, TypeVarTuple, cast

from pilothouse.model import keys, mapped
from pilothouse.model import proxy as proxies
from pilothouse.model import services as registry
from pilothouse.routing import (
    catalogue,
    endpoints,
    gateways,
    indexes,
    localities,
    parsed,
    sidecars,
    sources,
    tracing,
)
from pilothouse.routing import mapped as mapping
from pilothouse.routing import memo as memory

Beside = tuple[keys.ServiceKey, ...] | None
"""The services that a proxy is an endpoint of; None for one that does not ask for its peers."""
Selectors = Mapping[tuple[str, str], tuple[catalogue.Entry, ...]]
"""Services by the first label that they select."""
AtAddress = Mapping[keys.ServiceKey, tuple[tuple[endpoints.ServedPort, ...], ...]]
"""The ports that serve at one address, by service."""
_Gateways = Mapping[keys.ObjectKey, parsed.Gateway]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class SidecarKind:
    """Replicas of one workload are alike, and often all sidecars of a namespace."""

    namespace: str
    truths: sources.Truths
    """The tests of sources that hold of its requests."""
    stand: localities.Standpoint
    beside: Beside
    ports: tuple[endpoints.ServedPort, ...]
    """The application's."""
    bind: str
    application: str
    outbound_port: int
    mapped: tuple[mapped.MappedPort, ...]
    """Those that it does not serve for its application anyway."""
    service: str
    """Its name in traces; empty while nobody traces."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class GatewayKind:
    """Gateways are alike that serve the same MeshGateways from one place."""

    gateways: tuple[keys.ObjectKey, ...]
    stand: localities.Standpoint
    beside: Beside
    bind: str
    service: str
    """Its name in traces; empty while nobody traces."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class GrpcKind:
    """An application that reads its configuration itself; its listeners have its address."""

    namespace: str
    truths: sources.Truths
    stand: localities.Standpoint
    address: str
    ports: tuple[endpoints.ServedPort, ...]
    provider: str


Kind = SidecarKind | GatewayKind | GrpcKind
_K = TypeVar("_K", bound=Kind)
Ts = TypeVarTuple("Ts")
# The key is the hash alone, for a kind that is its own key would never be let go.
_known: weakref.WeakValueDictionary[int, Kind] = weakref.WeakValueDictionary()


def _one(kind: _K) -> _K:
    found = _known.setdefault(hash(kind), kind)
    return cast("_K", found) if found == kind else kind


Kinds = memory.Living[proxies.Proxy, tuple[tuple[object, ...], Kind]]
"""The kinds of proxies that exist, and what they were found from."""


def known(
    kinds: Kinds, function: Callable[[proxies.Proxy, *Ts], Kind], proxy: proxies.Proxy, *about: *Ts
) -> Kind:
    """The kind by this function of a proxy and of what is known where it is.

    With equal arguments as before the function is not called. Arguments are compared, and mostly
    are the same objects.
    """
    found = kinds.get(proxy)
    if found is None or found[0] != about:
        found = kinds.put(proxy, (about, function(proxy, *about)))
    return found[1]


class Interest(NamedTuple):
    """What of all proxies counts in a state of the mesh."""

    compared: frozenset[str] | None
    """Labels that policies compare; None if no policy looks at places."""
    traced: bool
    """True if names in traces count."""


class Place(NamedTuple):
    """What is known where a proxy is. Mostly the same objects as before, so compared in no time."""

    workload: registry.Workload | None
    """Its pod, if that is known."""
    at_address: AtAddress
    """What serves at its address."""
    selectors: Selectors
    """The services of its namespace."""
    asked: sources.Asked
    """The tests of sources in rules."""
    member_of: frozenset[keys.ServiceKey]
    """Services that those name, and that have an endpoint at its address."""


def sidecar(proxy: proxies.Proxy, place: Place, interest: Interest, beside: Beside) -> SidecarKind:
    """The kind of a sidecar.

    Args:
        proxy: Which.
        place: Where it is.
        interest: What of it counts at all.
        beside: The services that it is an endpoint of.
    """
    labels = indexes.labels(proxy, place.workload)
    ports = _served(proxy, place)
    return _one(
        SidecarKind(
            namespace=proxy.id.namespace,
            truths=_truths(proxy, labels, place),
            stand=_stand(proxy, labels, interest.compared),
            beside=beside,
            ports=ports,
            bind=proxy.bind_address,
            application=proxy.application_address,
            outbound_port=proxy.outbound_port,
            mapped=mapping.without(proxy, ports),
            service=_name(proxy, labels) if interest.traced else "",
        )
    )


def grpc(proxy: proxies.Proxy, place: Place, interest: Interest) -> GrpcKind:
    """The kind of a gRPC application; the arguments are those of `sidecar`."""
    labels = indexes.labels(proxy, place.workload)
    return _one(
        GrpcKind(
            namespace=proxy.id.namespace,
            truths=_truths(proxy, labels, place),
            stand=_stand(proxy, labels, interest.compared),
            address=proxy.id.address,
            ports=_served(proxy, place),
            provider=proxy.certificate_provider,
        )
    )


def gateway(
    proxy: proxies.Proxy,
    known: _Gateways,
    interest: Interest,
    beside: Beside,
) -> GatewayKind:
    """The kind of a gateway.

    Args:
        proxy: Which.
        known: All MeshGateways.
        interest: What of it counts at all.
        beside: The services that it is an endpoint of.
    """
    served = gateways.serving(known, namespace=proxy.id.namespace, labels=proxy.labels)
    return _one(
        GatewayKind(
            gateways=tuple(one.key for one in served),
            stand=_stand(proxy, proxy.labels, interest.compared),
            beside=beside,
            bind=proxy.bind_address,
            service=_name(proxy, proxy.labels) if interest.traced else "",
        )
    )


def moved(
    before: Mapping[keys.ServiceKey, tuple[registry.Endpoint, ...]],
    now: Mapping[keys.ServiceKey, tuple[registry.Endpoint, ...]],
) -> frozenset[str]:
    """The addresses of endpoints that are not the same objects, as they were and as they are."""
    changed = memory.differing(before, now)
    found = (one for key in changed for some in (before, now) for one in some.get(key, ()))
    return frozenset(one.address for one in found)


def _truths(proxy: proxies.Proxy, labels: keys.Labels, place: Place) -> sources.Truths:
    client = sources.Client(proxy.id.namespace, labels, place.member_of)
    return sources.truths(place.asked, client)


def _name(proxy: proxies.Proxy, labels: keys.Labels) -> str:
    return tracing.service_name(labels, name=proxy.id.name, namespace=proxy.id.namespace)


def _stand(
    proxy: proxies.Proxy, labels: keys.Labels, compared: frozenset[str] | None
) -> localities.Standpoint:
    """Where a proxy is, and which of its labels count, if that makes a difference."""
    if compared is None:
        return localities.NOWHERE
    return localities.Standpoint(
        place=proxy.locality, labels=tuple(label for label in labels if label[0] in compared)
    )


def _served(proxy: proxies.Proxy, place: Place) -> tuple[endpoints.ServedPort, ...]:
    """The application's ports: of its endpoints, and of services that select its labels."""
    if proxy.bind_address == proxy.application_address:
        # The application itself takes what arrives there; a listener would send to itself for
        # ever.
        return ()
    workload = place.workload
    return sidecars.served_ports(
        *(ports for some in place.at_address.values() for ports in some),
        endpoints.selected(place.selectors, workload.labels) if workload else (),
        except_port=proxy.outbound_port,
    )
