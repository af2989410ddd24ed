# SPDX-License-Identifier: Apache-2.0
"""The layers of sidecars that are no matter of namespaces: inbound traffic, and the listeners.

No address of the proxy itself gets in: replicas of one workload hold the same objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pilothouse.routing import endpoints, names, parsed, plan, tracing

_GENERAL: Final[dict[endpoints.Spoken, int]] = {"http2": 0, "http": 1, "tcp": 2}
"""What is said of one port in several ways is taken in the most general one."""


def served_ports(
    *found: Iterable[endpoints.ServedPort], except_port: int
) -> tuple[endpoints.ServedPort, ...]:
    """The application's ports, sorted, each once; those of UDP last.

    Where services say different things of one, it is HTTP/2 if all say so, and any bytes if one
    does: those who speak HTTP are served then, too.

    Args:
        found: What endpoints and selectors say.
        except_port: The proxy's own outbound port, which it cannot serve twice.
    """
    tcp: dict[int, endpoints.Spoken] = {}
    udp: set[int] = set()
    for ports in found:
        for port in ports:
            if port.spoken == "udp":
                udp.add(port.number)
            elif port.number != except_port:
                before = tcp.get(port.number, port.spoken)
                tcp[port.number] = max(before, port.spoken, key=_GENERAL.__getitem__)
    return (
        *(endpoints.ServedPort(number, tcp[number]) for number in sorted(tcp)),
        *(endpoints.ServedPort(number, "udp") for number in sorted(udp)),
    )


def inbound_layer(ports: tuple[endpoints.ServedPort, ...], application: str) -> plan.Layer:
    """What arrives, whatever host it was sent to, goes to the application.

    Args:
        ports: The application's ports.
        application: IP address on which it listens.
    """
    return plan.Layer(
        clusters=tuple(_inbound_cluster(port, application) for port in ports),
        route_configurations=tuple(
            _inbound_routes(port) for port in ports if port.spoken in ("http", "http2")
        ),
        tcp_forwards=tuple(
            sorted((_inbound_forward(port) for port in ports if port.spoken == "tcp"), key=_name)
        ),
    )


def _name(forward: plan.TcpForward) -> str:
    return forward.name


def _inbound_key(port: endpoints.ServedPort) -> plan.ClusterKey:
    return plan.ClusterKey(
        direction=plan.Direction.INBOUND, port=port.number, udp=port.spoken == "udp"
    )


def _inbound_cluster(port: endpoints.ServedPort, application: str) -> plan.Cluster:
    return plan.Cluster(
        key=_inbound_key(port),
        resolution="static",
        addresses=(plan.Address(host=application, port=port.number),),
        http2=port.spoken == "http2",
    )


def _inbound_routes(port: endpoints.ServedPort) -> plan.RouteConfiguration:
    share = plan.WeightedCluster(cluster=_inbound_key(port), weight=1)
    # The client's sidecar retries; a second try here would multiply them.
    route = plan.Route(
        name=names.DEFAULT_ROUTE,
        match=parsed.ANYTHING,
        action=plan.Forward(clusters=(share,), retry=None),
    )
    name = names.inbound(port.number)
    host = plan.VirtualHost(name=name, domains=("*",), routes=(route,))
    return plan.RouteConfiguration(name=name, virtual_hosts=(host,))


def _inbound_forward(port: endpoints.ServedPort) -> plan.TcpForward:
    share = plan.WeightedCluster(cluster=_inbound_key(port), weight=1)
    # How long nothing may move is for the client's sidecar to say.
    return plan.TcpForward(name=names.inbound(port.number), clusters=(share,), idle_timeout_ms=0)


def listeners_layer(
    bind_address: str,
    ports: tuple[endpoints.ServedPort, ...],
    outbound_port: int,
    service: str,
    mesh: parsed.MeshTracing | None,
) -> plan.Layer:
    """The listeners of a sidecar in explicit interception.

    Args:
        bind_address: Where they bind.
        ports: The application's ports, which the sidecar serves in its stead.
        outbound_port: Port of the HTTP proxy.
        service: The workload's name in traces.
        mesh: The mesh's tracing; None for none.
    """
    traced = tracing.listener_tracing(mesh, service)
    proxy = http_listener(
        names.HTTP_PROXY,
        direction=plan.Direction.OUTBOUND,
        address=bind_address,
        port=outbound_port,
        tracing=traced,
        origins=traced.origins if traced else (),
    )
    return plan.Layer(
        listeners=(*(_inbound_listener(port, bind_address, traced) for port in ports), proxy)
    )


def _inbound_listener(
    port: endpoints.ServedPort, address: str, traced: plan.Tracing | None
) -> plan.Listener:
    name = names.inbound(port.number, udp=port.spoken == "udp")
    if port.spoken in ("http", "http2"):
        return http_listener(
            name,
            direction=plan.Direction.INBOUND,
            address=address,
            port=port.number,
            tracing=traced,
            origins=traced.origins if traced else (),
        )
    return plan.Listener(
        name=name,
        direction=plan.Direction.INBOUND,
        address=address,
        port=port.number,
        transport="udp" if port.spoken == "udp" else "tcp",
        chains=(plan.Chain(name=name, serves=_served(port)),),
    )


def _served(port: endpoints.ServedPort) -> plan.Tcp | plan.Udp:
    if port.spoken == "udp":
        return plan.Udp(cluster=_inbound_key(port))
    return plan.Tcp(forward=names.inbound(port.number))


def http_listener(
    name: str,
    *,
    direction: plan.Direction,
    address: str,
    port: int,
    tracing: plan.Tracing | None = None,
    origins: plan.Origins = (),
) -> plan.Listener:
    """A listener whose connections are all plain HTTP; its routes and its chain have its name."""
    serves = plan.Http(route_configuration=name, tracing=tracing)
    return plan.Listener(
        name=name,
        direction=direction,
        address=address,
        port=port,
        chains=(plan.Chain(name=name, serves=serves),),
        origins=origins,
    )
