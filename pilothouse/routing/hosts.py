# SPDX-License-Identifier: Apache-2.0
"""Hosts besides the names and addresses of services: aliases, single pods, addresses of pods.

A service of type ExternalName is a DNS alias: what it stands for is called by its name, too. Each
pod of a StatefulSet has a name below its headless service, ``web-0.web.shop``, and behind it are
the endpoints that carry the pod's label. Whoever asks for the address of a pod gets that pod, by no
rule of any service: what is found out here is in which networks pods are, so that a pod that comes
or goes changes no route.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Final

from pilothouse.model import keys
from pilothouse.model import services as registry
from pilothouse.routing import catalogue, parsed, plan, rules
from pilothouse.routing import memo as memory

POD_LABEL: Final = "statefulset.kubernetes.io/pod-name"
"""What Kubernetes labels each pod of a StatefulSet with."""
ASKED: Final = plan.ClusterKey(direction=plan.Direction.OUTBOUND, port=0)
"""The cluster whose address is the host that is asked for."""
_LONGEST_CHAIN: Final = 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Aliases:
    """What services of type ExternalName stand for."""

    of: Mapping[parsed.Ref, tuple[keys.ServiceKey, ...]]
    """The aliases of services and external services, sorted."""
    outside: Mapping[keys.ServiceKey, str]
    """Aliases of hosts that nothing else speaks of, in key order."""

    def service(self, key: keys.ServiceKey) -> tuple[keys.ServiceKey, ...]:
        """The aliases of a service."""
        return self.of.get(parsed.Ref(external=False, key=key), ())

    def external(self, key: keys.ServiceKey) -> tuple[keys.ServiceKey, ...]:
        """The aliases of an external service."""
        return self.of.get(parsed.Ref(external=True, key=key), ())


def aliases(mesh: catalogue.Catalogue, claims: catalogue.Claims, domain: str) -> Aliases:
    """Look up what aliases stand for; one that stands for itself in the end stands for nothing."""
    owners = {host: key for key, hosts in claims.hosts.items() for host in hosts}
    found: dict[parsed.Ref, list[keys.ServiceKey]] = {}
    outside: dict[keys.ServiceKey, str] = {}
    for key, entry in mesh.entries.items():
        if entry.service.external_name is None:
            continue
        target = _target(key, mesh, owners, domain)
        if isinstance(target, parsed.Ref):
            found.setdefault(target, []).append(key)
        elif target is not None:
            outside[key] = target
    return Aliases(of={ref: tuple(sorted(found[ref])) for ref in sorted(found)}, outside=outside)


def _target(
    key: keys.ServiceKey,
    mesh: catalogue.Catalogue,
    owners: Mapping[str, keys.ServiceKey],
    domain: str,
) -> parsed.Ref | str | None:
    for _ in range(_LONGEST_CHAIN):
        name = mesh.entries[key].service.external_name
        if name is None:
            return parsed.Ref(external=False, key=key)
        host = name.lower().rstrip(".")
        next_one = catalogue.named(host, mesh=mesh, domain=domain)
        if next_one is None:
            owner = owners.get(host)
            return host or None if owner is None else parsed.Ref(external=True, key=owner)
        key = next_one
    return None


def alias_hosts(names: Iterable[keys.ServiceKey], domain: str) -> tuple[str, ...]:
    """What clients may call services by whose namespaces they name."""
    return tuple(
        f"{key.name}.{key.namespace}{suffix}"
        for key in names
        for suffix in ("", ".svc", f".svc.{domain}")
    )


def outside_ports(service: registry.Service) -> tuple[registry.Port, ...]:
    """The ports at which a host outside is reached by its alias: port 80 where none is said."""
    ports = {port.number: port for port in reversed(rules.routable_ports(service))}
    if not ports:
        return (registry.Port(number=80, protocol=registry.AppProtocol.HTTP),)
    return tuple(ports[number] for number in sorted(ports))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """What is known of single pods, as far as it changes hosts."""

    named: tuple[tuple[keys.ServiceKey, tuple[str, ...]], ...] = ()
    """Headless services, with the names of their pods; sorted."""
    networks: tuple[str, ...] = ()
    """Beginnings of addresses of pods, as they stand in URLs, each with ``*`` behind it; sorted."""


def pods(
    memo: memory.Memo,
    mesh: catalogue.Catalogue,
    endpoints: Mapping[keys.ServiceKey, tuple[registry.Endpoint, ...]],
    workloads: tuple[registry.Workload, ...],
) -> Pods:
    """Find out which pods have names, and in which networks pods are."""
    headless = memo.leaf(_headless, "", mesh)
    of_services = memo.joined(_of_service, "", headless, endpoints)
    of_workloads = memo.leaf(_workload_networks, "", workloads)
    return memo.leaf(_known, "", of_services, of_workloads)


_Found = Mapping[keys.ServiceKey, tuple[tuple[str, ...], tuple[str, ...]]]
"""Names of pods, and their networks, by service."""


def _known(of_services: _Found, of_workloads: frozenset[str]) -> Pods:
    networks = {one for _, some in of_services.values() for one in some}
    return Pods(
        named=tuple([(key, names) for key, (names, _) in of_services.items() if names]),
        networks=tuple(sorted(networks | of_workloads)),
    )


def _headless(mesh: catalogue.Catalogue) -> Mapping[keys.ServiceKey, bool]:
    return {key: not entry.service.cluster_ips for key, entry in mesh.entries.items()}


def _of_service(
    of: tuple[bool, tuple[registry.Endpoint, ...]],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of pods, of which headless services alone have some, and their networks."""
    headless, candidates = of
    names = (dict(one.labels).get(POD_LABEL, "") for one in candidates) if headless else ()
    networks = {network(one.address) for one in candidates}
    return tuple(sorted({name for name in names if name})), tuple(sorted(networks))


def _workload_networks(workloads: tuple[registry.Workload, ...]) -> frozenset[str]:
    return frozenset(network(address) for one in workloads for address in one.addresses)


def network(address: str) -> str:
    """The addresses that begin as this one does, as a pattern of hosts in URLs.

    A /24 of IPv4, which is what a node of Kubernetes gets for its pods. Of IPv6 a /64, where its
    spelling tells it apart from others, and else the address alone.
    """
    if ":" not in address:
        return f"{address.rpartition('.')[0]}.*"
    ip = ipaddress.IPv6Address(address)
    front = ip.exploded.split(":")[:4]
    if any(int(part, 16) == 0 for part in front):
        return f"[{ip}]*"
    return f"[{':'.join(f'{int(part, 16):x}' for part in front)}:*"


def pod_uses(
    pods: Pods, mesh: catalogue.Catalogue
) -> Mapping[keys.ServiceKey, tuple[rules.Labelled, ...]]:
    """The ports and labels by which single pods are reached."""
    return {
        key: tuple(
            rules.Labelled(port.number, ((POD_LABEL, name),))
            for port in mesh.entries[key].reached
            for name in names
        )
        for key, names in pods.named
        if key in mesh.entries
    }
