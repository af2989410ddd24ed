# SPDX-License-Identifier: Apache-2.0
"""Which matches of rules nothing ever reaches, found out from rules alone.

Services, gateways and external services that the rules speak of and that are not given are thought
to be there, with all the ports that rules could mean.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pilothouse.api.config.v1alpha1 import external_service_pb2, mesh_gateway_pb2
from pilothouse.config import codec, objects
from pilothouse.model import keys
from pilothouse.model import services as registry
from pilothouse.routing import parsed, planner, route_rules, routes, state

_SOME_PORT: Final[dict[parsed.Transport, int]] = {
    "http": 65501,
    "tls": 65502,
    "tcp": 65503,
    "udp": 65504,
}
"""Stands for the ports that no rule names."""
_SPOKEN: Final[dict[parsed.Transport, registry.AppProtocol]] = {
    "http": registry.AppProtocol.HTTP,
    "tls": registry.AppProtocol.TLS,
    "tcp": registry.AppProtocol.TCP,
    "udp": registry.AppProtocol.UDP,
}
_Listener = mesh_gateway_pb2.Listener
_PROTOCOLS: Final[dict[parsed.Transport, _Listener.Protocol.ValueType]] = {
    "http": _Listener.PROTOCOL_HTTP,
    "tls": _Listener.PROTOCOL_TLS,
    "tcp": _Listener.PROTOCOL_TCP,
    "udp": _Listener.PROTOCOL_UDP,
}
_External = external_service_pb2.ExternalPort
_EXTERNAL: Final[dict[parsed.Transport, _External.Protocol.ValueType]] = {
    "http": _External.PROTOCOL_HTTP,
    "tls": _External.PROTOCOL_TLS,
    "tcp": _External.PROTOCOL_TCP,
}
_SOURCE: Final = "offline"
_Ports = dict[tuple[int, bool], parsed.Transport]
"""What is spoken on each port; True for those of UDP."""
_Configs = Mapping[keys.ObjectKey, objects.Config]


def unreached(configs: _Configs) -> Mapping[keys.ObjectKey, tuple[str, ...]]:
    """Warnings about matches, by rule, in key order.

    Args:
        configs: Objects that are right, each by itself and among the others.
    """
    rules = [route_rules.rule(config) for key, config in configs.items() if key.kind == "RouteRule"]
    known = dict(configs)
    for config in (*_gateways(rules), *_externals(rules)):
        known.setdefault(config.key, config)
    mesh = planner.Planner().update(
        state.MeshState(services=_services(rules), configs=dict(sorted(known.items())))
    )
    by_key = {rule.key: rule for rule in rules}
    found: dict[keys.ObjectKey, dict[str, None]] = {}
    for place, shadow in sorted(mesh.unreached(), key=lambda one: (one[1], one[0])):
        rule = by_key.get(shadow.loser)
        if rule is not None and _is_everywhere(place, shadow, rule):
            text = (
                f"{shadow.field}.matches[{shadow.match}] is never reached: "
                f"{shadow.winner} takes all of it first"
            )
            found.setdefault(rule.key, {})[text] = None
    return {key: tuple(found[key]) for key in sorted(found)}


def _is_everywhere(place: str, shadow: routes.Shadow, rule: parsed.Rule) -> bool:
    """Tell whether what happens at a place happens wherever the match could be reached."""
    if any(parent.gateway is not None or parent.port is not None for parent in rule.parents):
        return True
    route = next(route for route in rule.every if route.field == shadow.field)
    named = any(match.port is not None for match in route.matches if match.position == shadow.match)
    return named or any(place.endswith(f":{port}") for port in _SOME_PORT.values())


def _numbers(
    rules: Iterable[parsed.Rule],
) -> Iterator[tuple[parsed.Parent, parsed.Transport, int]]:
    """The ports of parents that rules may mean."""
    for rule in rules:
        for parent in rule.parents:
            for route in rule.every:
                named = {match.port for match in route.matches if match.port is not None}
                for number in (
                    sorted({_SOME_PORT[route.transport], *named})
                    if parent.port is None
                    else (parent.port,)
                ):
                    yield parent, route.transport, number


def _services(rules: list[parsed.Rule]) -> Mapping[keys.ServiceKey, registry.Service]:
    found: dict[keys.ServiceKey, _Ports] = {}
    for parent, transport, number in _numbers(rules):
        if parent.ref is not None and not parent.ref.external:
            ports = found.setdefault(parent.ref.key, {})
            ports.setdefault((number, transport == "udp"), transport)
    return {
        key: registry.Service(
            key=key,
            ports=tuple(
                registry.Port(
                    number=number, name=f"{number}-{udp}", protocol=_SPOKEN[ports[number, udp]]
                )
                for number, udp in sorted(ports)
            ),
        )
        for key, ports in sorted(found.items())
    }


def _externals(rules: list[parsed.Rule]) -> Iterator[objects.Config]:
    found: dict[keys.ServiceKey, dict[int, parsed.Transport]] = {}
    for parent, transport, number in _numbers(rules):
        if parent.ref is not None and parent.ref.external:
            found.setdefault(parent.ref.key, {}).setdefault(number, transport)
    for key, ports in found.items():
        spec = external_service_pb2.ExternalServiceSpec(
            hosts=[f"{key.name}.{key.namespace}.invalid"],
            ports=[
                _External(number=number, protocol=_EXTERNAL[ports[number]])
                for number in sorted(ports)
                if ports[number] in _EXTERNAL
            ],
        )
        named = keys.ObjectKey("ExternalService", key.namespace, key.name)
        yield codec.make(named, spec, source=_SOURCE)


@dataclasses.dataclass(frozen=True, slots=True)
class _Named:
    """A listener that rules speak of, by name or by what it speaks."""

    name: str
    transport: parsed.Transport


def _gateways(rules: list[parsed.Rule]) -> Iterator[objects.Config]:
    found: dict[keys.ObjectKey, dict[_Named, int]] = {}
    for parent, transport, _ in _numbers(rules):
        if parent.gateway is not None:
            listeners = found.setdefault(parent.gateway, {})
            named = _Named(parent.listener or transport, transport)
            listeners.setdefault(named, len(listeners) + 1 if parent.listener else 0)
    for key, listeners in found.items():
        spec = mesh_gateway_pb2.MeshGatewaySpec(
            selector={"app": key.name}, allowed_namespaces=["*"]
        )
        for one, number in listeners.items():
            made = spec.listeners.add(
                name=one.name,
                port=number or _SOME_PORT[one.transport],
                protocol=_PROTOCOLS[one.transport],
            )
            if one.transport == "tls":
                made.tls.mode = mesh_gateway_pb2.ListenerTls.MODE_PASSTHROUGH
        yield codec.make(key, spec, source=_SOURCE)
