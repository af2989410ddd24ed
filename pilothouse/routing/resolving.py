# SPDX-License-Identifier: Apache-2.0
"""From a destination as written to the cluster it means, or to the reason why there is none."""

from __future__ import annotations

import dataclasses

from pilothouse.model import services as registry
from pilothouse.routing import catalogue, parsed, plan, rules


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unresolved:
    """A destination that leads nowhere."""

    reason: str
    """The reason of the condition ``ResolvedRefs``, where possible in the words of the Gateway API.
    """
    message: str
    status: int = 500
    """What its share of requests is answered."""


Resolution = plan.ClusterKey | Unresolved


def resolve(
    destination: parsed.Destination, target: rules.Target, site: catalogue.Site
) -> Resolution:
    """The cluster that a destination means where requests are routed.

    The port is the one given, else the one the request was for if the target has it, else the
    target's only one.
    """
    ref = destination.ref
    if target is None:
        return Unresolved(reason="BackendNotFound", message=f"{ref} does not exist")
    alias = target.key != ref.key or isinstance(target, parsed.External) != ref.external
    if destination.labels and (alias or isinstance(target, rules.Outside)):
        text = f"{ref} is of type ExternalName, and takes no labels"
        return Unresolved(reason="UnsupportedValue", message=text)
    match target:
        case registry.Service():
            return _service(destination, target, site.port, site.transport)
        case rules.Outside():
            return _outside(destination, target, site)
        case parsed.External():
            return _external(destination, target, site)


def _service(
    destination: parsed.Destination,
    service: registry.Service,
    requested: int,
    transport: parsed.Transport,
) -> Resolution:
    if service.external_name is not None:
        text = f"{destination.ref} is of type ExternalName, and stands for nothing"
        return Unresolved(reason="UnsupportedValue", message=text)
    found = _ports(destination, rules.routable_ports(service, transport), requested, transport)
    if not found:
        return _no_port(destination, requested, transport)
    return plan.ClusterKey(
        direction=plan.Direction.OUTBOUND,
        port=found[0].number,
        service=service.key,
        labels=destination.labels,
        udp=transport == "udp",
    )


def _outside(
    destination: parsed.Destination, target: rules.Outside, site: catalogue.Site
) -> Resolution:
    if site.egress_only and not site.gateway:
        # Fails closed: the name of a host outside is no way past the egress gateway.
        text = f"{destination.ref} is outside, and requests may leave by the egress gateway only"
        return Unresolved(reason="RefNotPermitted", message=text, status=503)
    open_ports = target.ports if site.transport != "udp" else ()
    found = _ports(destination, open_ports, site.port, site.transport)
    if not found:
        return _no_port(destination, site.port, site.transport)
    return plan.ClusterKey(
        direction=plan.Direction.OUTBOUND, port=found[0].number, service=target.key
    )


def _ports(
    destination: parsed.Destination,
    open_ports: tuple[registry.Port, ...],
    requested: int,
    transport: parsed.Transport,
) -> list[registry.Port]:
    if destination.port is not None:
        return [port for port in open_ports if port.number == destination.port]
    fitting = [port for port in open_ports if port.protocol.is_http == (transport == "http")]
    return [port for port in open_ports if port.number == requested] or _only(
        fitting or list(open_ports)
    )


def _only(ports: list[registry.Port]) -> list[registry.Port]:
    return ports if len({port.number for port in ports}) == 1 else []


def _external(
    destination: parsed.Destination, external: parsed.External, site: catalogue.Site
) -> Resolution:
    if not site.gateway and (site.egress_only or external.through_egress):
        # Fails closed: whatever the rule says, a sidecar has no way out past the egress gateway.
        text = f"{destination.ref} is reached from here through the egress gateway only"
        return Unresolved(reason="RefNotPermitted", message=text, status=503)
    if site.transport == "udp":
        text = f"{destination.ref} has no ports of UDP"
        return Unresolved(reason="PortNotFound", message=text)
    numbers = [port.number for port in external.ports]
    wanted = site.port if destination.port is None else destination.port
    if wanted not in numbers:
        if destination.port is not None or len(numbers) != 1:
            return _no_port(destination, site.port, site.transport)
        wanted = numbers[0]
    return catalogue.external_cluster_key(external.key, wanted)


def _no_port(
    destination: parsed.Destination, requested: int, transport: parsed.Transport
) -> Unresolved:
    if destination.port is not None:
        kind = "port of UDP" if transport == "udp" else "port"
        text = f"{destination.ref} has no {kind} {destination.port}"
    else:
        text = f"{destination.ref} has no port {requested} and more than one other: name one"
    return Unresolved(reason="PortNotFound", message=text)
