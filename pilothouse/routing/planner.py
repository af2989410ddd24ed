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
from typing import Final, TypeVar, TypeVarTuple, assert_never

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
    kinship,
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
from pilothouse.routing import conditions as findings
from pilothouse.routing import memo as memory
from pilothouse.routing import plan as plans
from pilothouse.routing import state as states

Ts = TypeVarTuple("Ts")
R = TypeVar("R")
FORGOTTEN = 1000
"""Kinds that come after which what none of them needed again is forgotten, without a new state."""
_NOTHING_THERE: Final[kinship.AtAddress] = {}


class Planner:
    """Plans one state of the mesh after another, and remembers what may be used again."""

    def __init__(self) -> None:
        self._shared = memory.Memo()
        self._asked = memory.Memo()
        self._kinds: kinship.Kinds = memory.Living()

    def update(self, state: states.MeshState) -> Mesh:
        """Index a state. Meshes of earlier states stay as they are."""
        self._shared = self._shared.next()
        self._asked = self._asked.next()
        return Mesh(state, shared=self._shared, asked=self._asked, kinds=self._kinds)


class Mesh:
    """One state of the mesh, arranged to answer what a proxy must do; for one thread at a time."""

    def __init__(
        self,
        state: states.MeshState,
        *,
        shared: memory.Memo,
        asked: memory.Memo,
        kinds: kinship.Kinds,
    ) -> None:
        """Made by a `Planner`.

        Args:
            state: What to plan.
            shared: Remembers the pieces that every state needs.
            asked: Remembers the pieces that some proxies need.
            kinds: Remembers what the proxies are.
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
        self._policies = shared.leaf(
            clusters.arrange, "", found.policies, found.defaults.connecting
        )
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
        compared = shared.leaf(localities.compared, "", tuple(self._placed.values()))
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
        self._interest = kinship.Interest(
            compared=compared if self._placed else None, traced=found.tracing is not None
        )
        self._once: dict[object, object] = {}
        self._kinds = kinds
        self._planned: memory.Living[kinship.Kind, plans.ProxyPlan] = memory.Living()
        self._fresh = 0

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
        if role is proxies.Role.SOURCE:
            return plans.ProxyPlan(layers=())
        missing = self._remembered(
            role, lambda: indexes.missing(role, self.state.unsynced, self._objects.externals)
        )
        if missing and not served:
            return plans.NotReady(waiting_for=missing)
        kind = self.kind(proxy)
        planned = self._planned.get(kind)
        if planned is None:
            self._fresh += 1
            if self._fresh % FORGOTTEN == 0:
                self._asked.turn()
            planned = self._planned.put(kind, self._plan_of(kind))
        return planned

    def moved(self, before: Mesh) -> frozenset[str] | None:
        """The addresses whose proxies may be of another kind than before; None if any may be.

        It looks at what `kind` does; plans depend on more.
        """
        same = (
            self._objects is before._objects
            and self._directory is before._directory
            and self._attachments is before._attachments
            and self._workloads is before._workloads
            and self._placed is before._placed
            and self.state.unsynced == before.state.unsynced
        )
        return kinship.moved(before.state.endpoints, self.state.endpoints) if same else None

    def kind(self, proxy: proxies.Proxy) -> kinship.Kind:
        """What a proxy is, if it is no source; those of one kind have one plan."""
        beside, at = self._services_beside(proxy), (proxy.id.namespace, proxy.id.address)
        if proxy.id.role is proxies.Role.GATEWAY:
            return kinship.known(
                self._kinds, kinship.gateway, proxy, self._gateways, self._interest, beside
            )
        place = kinship.Place(
            workload=self._workloads.get(at),
            at_address=self._addresses.get(at, _NOTHING_THERE),
            selectors=self._selectors(proxy.id.namespace),
            asked=self._clients.asked,
            member_of=self._clients.member_of(proxy.id.address),
        )
        if proxy.id.role is proxies.Role.GRPC:
            return kinship.known(self._kinds, kinship.grpc, proxy, place, self._interest)
        return kinship.known(self._kinds, kinship.sidecar, proxy, place, self._interest, beside)

    def _plan_of(self, kind: kinship.Kind) -> plans.ProxyPlan:
        match kind:
            case kinship.SidecarKind():
                return self._sidecar(kind)
            case kinship.GatewayKind():
                return self._gateway(kind)
            case kinship.GrpcKind():
                return self._grpc(kind)
            case _:
                assert_never(kind)

    def _sidecar(self, kind: kinship.SidecarKind) -> plans.ProxyPlan:
        namespace, truths, ports = kind.namespace, kind.truths, kind.ports
        inbound = (ports, kind.application)
        slot = (kind.bind, ports, kind.outbound_port, kind.service)
        return self._plan(
            kind,
            self._clients.sent(namespace, truths),
            *self._endpoint_layers(kind.stand),
            *self._peers(kind.beside),
            self._layer(sidecars.inbound_layer, inbound, *inbound),
            self._layer(sidecars.listeners_layer, slot, *slot, self._objects.tracing),
            *self._clients.sent_by_ports(
                namespace, truths, kind.mapped, kind.service, self._objects
            ),
        )

    def _endpoint_layers(self, stand: localities.Standpoint) -> tuple[plans.Layer, ...]:
        """The layer that all proxies share, and one that those with the same standpoint do."""
        if not self._placed:
            return (self._endpoints,)
        seen = (self._directory.mesh, self.state.endpoints, self._placed, stand)
        return self._endpoints, self._remembered(
            ("endpoints", stand), lambda: self._asked.group(endpoints.placed_layer, stand, *seen)
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

    def _grpc(self, kind: kinship.GrpcKind) -> plans.ProxyPlan:
        client = (kind.namespace, kind.truths)
        outward = self._clients.sent(*client)
        sending = self._asked.group(proxyless.clients, client, outward)
        provider, serving = kind.provider, (kind.address, kind.ports)
        return self._asked.leaf(
            indexes.proxyless_plan,
            kind,
            self._endpoint_layers(kind.stand),
            (
                self._asked.leaf(providing.by, (*client, provider), provider, sending),
                self._asked.leaf(proxyless.servers, serving, *serving),
            ),
        )

    def _plan(self, kind: kinship.Kind, *layers: plans.Layer) -> plans.ProxyPlan:
        if self._lifetimes:
            layers = tuple(self._limited(kind, one) for one in layers)
        return self._asked.whole(indexes.proxy_plan, kind, (*layers, *self._tracing))

    def _limited(self, kind: kinship.Kind, layer: plans.Layer) -> plans.Layer:
        if not layer.tcp_forwards:
            return layer
        # The layer is kept with it, so that nothing else can get its identity.
        _, limited = self._remembered(
            ("limited", id(layer)),
            lambda: (
                layer,
                self._asked.leaf(
                    lifetimes.limited, (kind, layer.tcp_forwards[0].name), layer, self._lifetimes
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

    @functools.cached_property
    def _addresses(self) -> endpoints.ByAddress:
        """What serves at each address; for gateways that are alone nobody asks."""
        return self._asked.group(
            endpoints.by_address, "", self._directory.mesh, self.state.endpoints
        )

    def _selectors(self, namespace: str) -> kinship.Selectors:
        """The services of a namespace by what they select."""
        return self._remembered(
            ("selectors", namespace),
            lambda: self._asked.leaf(
                endpoints.by_selector,
                namespace,
                self._directory.mesh.by_namespace.get(namespace, ()),
            ),
        )

    def _gateway(self, kind: kinship.GatewayKind) -> plans.ProxyPlan:
        slot = (*kind.gateways, kind.bind, kind.service)
        found = self._serve(tuple(self._gateways[key] for key in kind.gateways))
        how = (kind.bind, kind.service, self._objects.tracing)
        listeners = self._asked.leaf(gateway_listeners.listeners, slot, found.ports, *how)
        return self._plan(
            kind,
            self._layer(gateways.layer, slot, found, listeners),
            *self._endpoint_layers(kind.stand),
            *self._peers(kind.beside),
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
