# SPDX-License-Identifier: Apache-2.0
"""The layers of sidecars that are no matter of namespaces: inbound traffic, and the listeners.

No address of the proxy itself gets in: replicas of one workload hold the same objects.
"""

from __future__ import annotations

from collections.abc import Iterable

from pilothouse.routing import endpoints, names, parsed, plan, tracing


def served_ports(
    *found: Iterable[endpoints.ServedPort], except_port: int
) -> tuple[endpoints.ServedPort, ...]:
    """The application's ports, sorted, each once; HTTP/2 where every service there says so.

    Args:
        found: What endpoints and selectors say.
        except_port: The proxy's own outbound port, which it cannot serve twice.
    """
    merged: dict[int, bool] = {}
    for ports in found:
        for port, http2 in ports:
            merged[port] = merged.get(port, True) and http2
    merged.pop(except_port, None)
    return tuple(sorted(merged.items()))


def inbound_layer(ports: tuple[endpoints.ServedPort, ...], application: str) -> plan.Layer:
    """What arrives, whatever host it was sent to, goes to the application.

    Args:
        ports: The application's ports.
        application: IP address on which it listens.
    """
    return plan.Layer(
        clusters=tuple(_inbound_cluster(port, http2, application) for port, http2 in ports),
        route_configurations=tuple(_inbound_routes(port) for port, _ in ports),
    )


def _inbound_key(port: int) -> plan.ClusterKey:
    return plan.ClusterKey(direction=plan.Direction.INBOUND, port=port)


def _inbound_cluster(port: int, http2: bool, application: str) -> plan.Cluster:  # noqa: FBT001
    return plan.Cluster(
        key=_inbound_key(port),
        resolution="static",
        addresses=(plan.Address(host=application, port=port),),
        http2=http2,
    )


def _inbound_routes(port: int) -> plan.RouteConfiguration:
    share = plan.WeightedCluster(cluster=_inbound_key(port), weight=1)
    # The client's sidecar retries; a second try here would multiply them.
    route = plan.Route(
        name=names.DEFAULT_ROUTE,
        match=parsed.ANYTHING,
        action=plan.Forward(clusters=(share,), retry=None),
    )
    host = plan.VirtualHost(name=names.inbound(port), domains=("*",), routes=(route,))
    return plan.RouteConfiguration(name=names.inbound(port), virtual_hosts=(host,))


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
    origins = traced.origins if traced else ()
    inbound = tuple(
        http_listener(
            names.inbound(port),
            direction=plan.Direction.INBOUND,
            address=bind_address,
            port=port,
            tracing=traced,
            origins=origins,
        )
        for port, _ in ports
    )
    proxy = http_listener(
        names.HTTP_PROXY,
        direction=plan.Direction.OUTBOUND,
        address=bind_address,
        port=outbound_port,
        tracing=traced,
        origins=origins,
    )
    return plan.Layer(listeners=(*inbound, proxy))


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
