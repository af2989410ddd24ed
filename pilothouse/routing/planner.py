# SPDX-License-Identifier: Apache-2.0
"""From a state of the mesh to what each proxy must do.

A `Planner` takes one state after another; each gives a `Mesh`, an index that never changes its
answers. Every piece of it is a pure function of values, remembered from the state before: what had
equal arguments is the same object again, down to whole layers. So the cost of a change is that of
what it reaches, and identity tells whoever translates a plan what is new. What depends on proxies
(namespaces, workloads, sets of gateways) is made when the first such proxy asks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TypeVar, TypeVarTuple

from pilothouse.config import objects
from pilothouse.model import keys
from pilothouse.model import proxy as proxies
from pilothouse.model import services as registry
from pilothouse.routing import (
    access_logs,
    catalogue,
    clientele,
    clusters,
    credentials,
    destinations,
    endpoints,
    gateway_listeners,
    gateways,
    hosts,
    indexes,
    lifetimes,
    localities,
    parsed,
    parsing,
    peers,
    providing,
    proxyless,
    rules,
    sidecars,
    told,
    tracing,
)
from pilothouse.routing import (
    conditions as findings,
)
from pilothouse.routing import (
    mapped as mapping,
)
from pilothouse.routing import memo as memory
from pilothouse.routing import (
    plan as plans,
)
from pilothouse.routing import (
    state as states,
)

Ts = TypeVarTuple("Ts")
R = TypeVar("R")


class Planner:
    """Plans one state of the mesh after another, and remembers what may be used again."""

    def __init__(self) -> None:
        self._shared = memory.Memo()
        self._asked = memory.Memo()

    def update(self, state: states.MeshState) -> Mesh:
        """Index a state. Meshes of earlier states stay as they are."""
        self._shared = self._shared.next()
        self._asked = self._asked.next()
        return Mesh(state, shared=self._shared, asked=self._asked)


class Mesh:
    """One state of the mesh, arranged to answer what a proxy must do; for one thread at a time."""

    def __init__(self, state: states.MeshState, *, shared: memory.Memo, asked: memory.Memo) -> None:
        """Made by a `Planner`.

        Args:
            state: What to plan.
            shared: Remembers the pieces that every state needs.
            asked: Remembers the pieces that some proxies need.
        """
        self.state = state
        self._asked = asked
        found = shared.group(parsing.parse, "", state.configs)
        mesh = shared.group(catalogue.catalogue, "", state.services, found.defaults)
        claims = shared.group(
            catalogue.claims, "", found.externals, mesh, state.domain, found.defaults
        )
        aliases = shared.leaf(hosts.aliases, "", mesh, claims, state.domain)
        named = shared.leaf(destinations.targets, "", state.services, claims.externals, aliases)
        bound = shared.group(rules.bind, "", found.rules, named, claims.externals)
        self._objects = found
        self._gateways = shared.leaf(indexes.by_key, "", found.gateways)
        self._attachments = shared.group(rules.attach, "", bound, self._gateways)
        self._policies = shared.leaf(clusters.arrange, "", found.policies)
        self._directory = shared.leaf(indexes.directory, "", mesh, claims, self._policies, aliases)
        pods = shared.group(hosts.pods, "", mesh, state.endpoints, state.workloads)
        self._bound = bound
        single = shared.leaf(hosts.pod_uses, "", pods, mesh)
        uses = shared.group(clusters.labelled_uses, "", bound, single)
        self._scoped = shared.leaf(clusters.rescoped, "", self._policies, mesh, claims, uses)
        self._placed = shared.leaf(clusters.placed, "", self._policies, mesh, uses, self._scoped)
        self._lifetimes = shared.leaf(
            lifetimes.limits, "", self._policies, mesh, claims, uses, self._scoped
        )
        self._compared = shared.leaf(localities.compared, "", tuple(self._placed.values()))
        self._endpoints = shared.group(
            endpoints.layer, "", mesh, state.endpoints, uses, self._scoped, self._placed
        )
        self._clients = clientele.Clientele(
            clientele.Known(
                directory=self._directory,
                attachments=self._attachments,
                scoped=self._scoped,
                endpoints=state.endpoints,
                pods=pods,
                allow_any=found.defaults.allow_any,
                domain=state.domain,
            ),
            shared=shared,
            asked=asked,
        )
        self._workloads = shared.leaf(indexes.workloads, "", state.workloads)
        self._tracing = (
            () if found.tracing is None else (shared.leaf(tracing.layer, "", found.tracing),)
        )
        self._once: dict[object, object] = {}

    def plan(
        self, proxy: proxies.Proxy, *, served: bool = False
    ) -> plans.ProxyPlan | plans.NotReady:
        """What a proxy must do; `NotReady` while a source that it needs has not been read whole.

        Args:
            proxy: Whom to plan for.
            served: True for one that follows a plan made while the same sources were missing: it
                has nothing of theirs to lose, and must not stand still because somebody begins to
                need them. What leads there is answered 503.
        """
        role = proxy.id.role
        missing = self._remembered(
            ("missing", role),
            lambda: indexes.missing(role, self.state.unsynced, self._objects.externals),
        )
        if missing and not served:
            return plans.NotReady(waiting_for=missing)
        match role:
            case proxies.Role.SIDECAR:
                return self._sidecar(proxy)
            case proxies.Role.GATEWAY:
                return self._gateway(proxy)
            case proxies.Role.GRPC:
                return self._grpc(proxy)
            case proxies.Role.SOURCE:
                return plans.ProxyPlan(layers=())

    def _sidecar(self, proxy: proxies.Proxy) -> plans.ProxyPlan:
        namespace = proxy.id.namespace
        workload = self._workloads.get((namespace, proxy.id.address))
        labels = indexes.labels(proxy, workload)
        service = tracing.service_name(labels, name=proxy.id.name, namespace=namespace)
        ports = self._served(proxy, workload)
        bind, application = proxy.bind_address, proxy.application_address
        truths = self._clients.truths(namespace, proxy.id.address, labels)
        slot = (bind, ports, proxy.outbound_port, service)
        stand = self._stand(proxy, labels)
        beside = self._services_beside(proxy)
        mapped = mapping.without(proxy, ports)
        return self._plan(
            (namespace, truths, application, stand, beside, mapped, *slot),
            self._clients.sent(namespace, truths),
            *self._endpoint_layers(stand),
            *self._peers(beside),
            self._layer(sidecars.inbound_layer, (ports, application), ports, application),
            self._layer(sidecars.listeners_layer, slot, *slot, self._objects.tracing),
            *self._clients.sent_by_ports(namespace, truths, mapped, service, self._objects),
        )

    def _stand(self, proxy: proxies.Proxy, labels: keys.Labels) -> localities.Standpoint:
        """Where a proxy is, and which of its labels count, if that makes a difference."""
        if not self._placed:
            return localities.NOWHERE
        compared = tuple(label for label in labels if label[0] in self._compared)
        return localities.Standpoint(place=proxy.locality, labels=compared)

    def _endpoint_layers(self, stand: localities.Standpoint) -> tuple[plans.Layer, ...]:
        """The layer that all proxies share, and one that those with the same standpoint do."""
        if not self._placed:
            return (self._endpoints,)
        return self._endpoints, self._remembered(
            ("endpoints", stand),
            lambda: self._asked.group(
                endpoints.placed_layer,
                stand,
                self._directory.mesh,
                self.state.endpoints,
                self._placed,
                stand,
            ),
        )

    def _services_beside(self, proxy: proxies.Proxy) -> tuple[keys.ServiceKey, ...] | None:
        """The services that a proxy is an endpoint of; None for one that does not ask for peers."""
        if proxy.locality == registry.Locality():
            return None
        if not self._policies.zoned:
            return ()
        entries = self._directory.mesh.by_namespace.get(proxy.id.namespace, ())
        found = self._remembered(
            ("services", proxy.id.namespace),
            lambda: self._asked.group(
                peers.by_address,
                proxy.id.namespace,
                entries,
                indexes.endpoints_of(entries, self.state.endpoints),
            ),
        )
        return tuple(found.get(proxy.id.address, ()))

    def _peers(self, services: tuple[keys.ServiceKey, ...] | None) -> tuple[plans.Layer, ...]:
        if services is None:
            return ()
        found = tuple(self.state.endpoints.get(one, ()) for one in services)
        return (self._layer(peers.layer, services, found),)

    def _grpc(self, proxy: proxies.Proxy) -> plans.ProxyPlan:
        namespace, address = proxy.id.namespace, proxy.id.address
        workload = self._workloads.get((namespace, address))
        ports = self._served(proxy, workload)
        labels = indexes.labels(proxy, workload)
        truths = self._clients.truths(namespace, proxy.id.address, labels)
        outward = self._clients.sent(namespace, truths)
        stand, provider = self._stand(proxy, labels), proxy.certificate_provider
        sending = self._asked.group(proxyless.clients, (namespace, truths), outward)
        return self._asked.leaf(
            indexes.proxyless_plan,
            (namespace, truths, address, ports, stand, provider),
            self._endpoint_layers(stand),
            (
                self._asked.leaf(providing.by, (namespace, truths, provider), provider, sending),
                self._asked.leaf(proxyless.servers, (address, ports), address, ports),
            ),
        )

    def _plan(self, slot: tuple[object, ...], *layers: plans.Layer) -> plans.ProxyPlan:
        if self._lifetimes:
            layers = tuple(self._limited(slot, one) for one in layers)
        return self._asked.whole(indexes.proxy_plan, slot, (*layers, *self._tracing))

    def _limited(self, slot: tuple[object, ...], layer: plans.Layer) -> plans.Layer:
        if not layer.tcp_forwards:
            return layer
        # The layer is kept with it, so that nothing else can get its identity.
        _, limited = self._remembered(
            ("limited", id(layer)),
            lambda: (
                layer,
                self._asked.leaf(
                    lifetimes.limited, (slot, layer.tcp_forwards[0].name), layer, self._lifetimes
                ),
            ),
        )
        return limited

    def _layer(
        self, function: Callable[[*Ts], plans.Layer], slot: tuple[object, ...], *args: *Ts
    ) -> plans.Layer:
        made = self._asked.leaf(function, slot, *args)
        log = self._objects.defaults.access_log
        if log is None:
            return made
        return self._asked.leaf(access_logs.logged, (function, slot), made, log)

    def _remembered(self, key: object, make: Callable[[], R]) -> R:
        """Ask once per state: even a memo compares its arguments."""
        if key not in self._once:
            self._once[key] = make()
        return self._once[key]  # type: ignore[return-value]

    def _served(
        self, proxy: proxies.Proxy, workload: registry.Workload | None
    ) -> tuple[endpoints.ServedPort, ...]:
        """The application's ports: of its endpoints, and of services that select its labels."""
        if proxy.bind_address == proxy.application_address:
            # The application itself takes what arrives there; a listener would send to itself for
            # ever.
            return ()
        namespace = proxy.id.namespace
        addresses = self._remembered(
            "addresses",
            lambda: self._asked.group(
                endpoints.by_address, "", self._directory.mesh, self.state.endpoints
            ),
        )
        at_address = addresses.get((namespace, proxy.id.address), {}).values()
        return sidecars.served_ports(
            *(ports for some in at_address for ports in some),
            self._selected(namespace, workload.labels) if workload else (),
            except_port=proxy.outbound_port,
        )

    def _selected(self, namespace: str, labels: keys.Labels) -> tuple[endpoints.ServedPort, ...]:
        """The ports of a workload that services select by label."""
        entries = self._directory.mesh.by_namespace.get(namespace, ())
        services = self._remembered(
            ("selectors", namespace),
            lambda: self._asked.leaf(endpoints.by_selector, namespace, entries),
        )
        return endpoints.selected(services, labels)

    def _gateway(self, proxy: proxies.Proxy) -> plans.ProxyPlan:
        namespace = proxy.id.namespace
        served = gateways.serving(self._gateways, namespace=namespace, labels=proxy.labels)
        service = tracing.service_name(proxy.labels, name=proxy.id.name, namespace=namespace)
        how = (proxy.bind_address, service)
        slot = (*(gateway.key for gateway in served), *how)
        found = self._serve(served)
        listeners = self._asked.leaf(
            gateway_listeners.listeners, slot, found.ports, *how, self._objects.tracing
        )
        stand = self._stand(proxy, proxy.labels)
        beside = self._services_beside(proxy)
        return self._plan(
            (stand, beside, *slot),
            self._layer(gateways.layer, slot, found, listeners),
            *self._endpoint_layers(stand),
            *self._peers(beside),
        )

    def _serve(self, served: tuple[parsed.Gateway, ...]) -> gateways.Gateways:
        slot = tuple(gateway.key for gateway in served)
        scoped = self._scoped.get(slot[0].namespace, {}) if slot else {}
        return self._remembered(
            ("gateways", slot),
            lambda: self._asked.group(
                gateways.gateways,
                slot,
                tuple(
                    gateways.Served(one, self._attachments.gateways.get(one.key, {}))
                    for one in served
                ),
                self._directory,
                scoped,
            ),
        )

    @functools.cached_property
    def conditions(self) -> Mapping[keys.ObjectKey, tuple[objects.Condition, ...]]:
        """What was found out about each object, in key order; conditions are sorted by type."""
        found = self._asked.group(
            findings.all_conditions,
            "",
            findings.Findings(
                objects=self._objects,
                directory=self._directory,
                bound=self._bound,
                gateways=self._gateways,
                producers=self._attachments.producers,
                shadows=self.unreached(),
            ),
            self._asked.group(
                findings.barren,
                "",
                self._asked.group(findings.wanted, "", self._objects.rules, self._objects.policies),
                self.state.endpoints,
            ),
        )
        return self._asked.leaf(credentials.told, "", found, self._objects, self.state.secrets)

    def unreached(self) -> told.Shadows:
        """Matches that nothing reaches, with the host and port where that is so."""
        at_hosts = list(self._clients.unreached())
        for gateway in self._gateways.values():
            at_hosts += self._serve((gateway,)).shadows
        return tuple(at_hosts)
