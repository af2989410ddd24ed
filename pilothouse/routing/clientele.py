# SPDX-License-Identifier: Apache-2.0
"""What clients in the mesh send, by their namespace and by the tests that hold of them.

It is made when the first such client asks, and once in a state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from pilothouse.model import keys
from pilothouse.model import mapped as ports
from pilothouse.model import services as registry
from pilothouse.routing import (
    access_logs,
    clusters,
    common,
    extra_hosts,
    hosts,
    mapped,
    outbound,
    parsing,
    plan,
    rules,
    sources,
)
from pilothouse.routing import memo as memory

_NO_SERVICES: Final[frozenset[keys.ServiceKey]] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What it all comes from."""

    directory: clusters.Directory
    attachments: rules.Attachments
    scoped: Mapping[str, clusters.Scoped]
    endpoints: Mapping[keys.ServiceKey, tuple[registry.Endpoint, ...]]
    pods: hosts.Pods
    allow_any: bool
    """Whether hosts that nothing speaks of are asked, too."""
    domain: str


class Clientele:
    """The clients of one state of the mesh."""

    def __init__(self, known: Known, *, shared: memory.Memo, asked: memory.Memo) -> None:
        """Made by a `Mesh`.

        Args:
            known: What to look at.
            shared: Remembers the pieces that every state needs.
            asked: Remembers the pieces that some clients need.
        """
        self._known = known
        self._memo = asked
        self.asked = shared.leaf(sources.asked, "", known.attachments)
        """The tests of sources in rules."""
        services = self.asked.services
        candidates = tuple(known.endpoints.get(key, ()) for key in services)
        self._members = shared.leaf(sources.members, "", services, candidates)
        self._base = shared.group(
            common.base,
            "",
            known.directory,
            known.attachments.producers,
            known.pods,
            known.allow_any,
            known.domain,
        )
        self._once: dict[object, outbound.Outbound] = {}
        self._owns: dict[str, outbound.Own] = {}

    def member_of(self, address: str) -> frozenset[keys.ServiceKey]:
        """The services that tests of sources name, and that have an endpoint there."""
        return self._members.get(address, _NO_SERVICES)

    def sent(self, namespace: str, truths: sources.Truths) -> plan.Layer:
        """The outbound layer of a client."""
        own = self._own(namespace)
        slot = (own.namespace, truths)
        # Even a memo compares its arguments.
        if slot not in self._once:
            self._once[slot] = self._outbound(own, truths)
        return self._once[slot].layer

    def sent_by_ports(
        self,
        namespace: str,
        truths: sources.Truths,
        found: tuple[ports.MappedPort, ...],
        service: str,
        mesh: parsing.Objects,
    ) -> tuple[plan.Layer, ...]:
        """The layer of a client's mapped ports, if it has some.

        Args:
            namespace: The client's.
            truths: The tests that hold of it.
            found: Its mapped ports.
            service: Its name in traces.
            mesh: Its defaults.
        """
        if not found:
            return ()
        own = dataclasses.replace(self._own(namespace), truths=truths)
        layer = self._memo.group(
            mapped.layer,
            (own.namespace, truths, found, service),
            mapped.Client(ports=found, own=own, service=service),
            self.sent(namespace, truths),
            self._known.directory,
            self._known.attachments.producers,
            mesh.tracing,
        )
        log = mesh.defaults.access_log
        slot = (own.namespace, truths, found, service)
        return (self._memo.leaf(access_logs.logged, slot, layer, log),)

    def unreached(self) -> outbound.Shadows:
        """Matches that nothing in the mesh reaches, with the hosts where that is so."""
        return self._memo.group(
            outbound.unreached,
            "",
            self._base,
            tuple(self._own(namespace) for namespace in self._known.attachments.consumers),
            self._known.directory,
            self._known.attachments.producers,
        )

    def _own(self, namespace: str) -> outbound.Own:
        """What a namespace does not share; that of all namespaces that share everything."""
        found = self._owns.get(namespace)
        if found is None:
            known = self._known
            own = outbound.Own(
                namespace=namespace,
                entries=known.directory.mesh.by_namespace.get(namespace, ()),
                consumers=known.attachments.consumers.get(namespace, {}),
                scoped=known.scoped.get(namespace, {}),
            )
            found = self._owns[namespace] = outbound.NOTHING if own.is_nothing else own
        return found

    def _outbound(self, own: outbound.Own, truths: sources.Truths) -> outbound.Outbound:
        known, memo = self._known, self._memo
        varied = [
            memo.group(common.varied, (host.name, hits), host, hits)
            for host in self._base.varying
            if (hits := truths.intersection(host.sources))
        ]
        names = memo.leaf(
            extra_hosts.local_names,
            own.namespace,
            own.namespace,
            own.entries,
            known.directory,
            known.pods,
        )
        local = memo.group(outbound.local_hosts, own.namespace, self._base, names)
        return memo.group(
            outbound.outbound,
            (own.namespace, truths),
            self._base,
            dataclasses.replace(own, truths=truths, varied=tuple(varied), names=names, local=local),
            known.directory,
            known.attachments.producers,
        )
