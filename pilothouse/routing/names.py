# SPDX-License-Identifier: Apache-2.0
"""The names of what a plan holds, in one grammar: parts divided by ``|``, the kind first.

Cluster keys get their names from whoever translates the plan; the rest is named here::

    http-proxy                    listener and route configuration of a sidecar's HTTP proxy
    inbound|PORT                  listener, and route configuration and virtual host or forward, of
                                  an application's port; of UDP with /udp behind it
    gateway|PORT                  listener, chain and route configuration of a gateway's port
    gateway|PORT/udp              listener and chain of one of UDP, HTTP/3 too
    gateway|PORT|NAME.NAMESPACE|LISTENER
                                  chain and route configuration of a listener of a MeshGateway
                                  that shares a port of TLS
    NAME.NAMESPACE:PORT           virtual host of a service's port
    external:NAME.NAMESPACE:PORT  virtual host of an external service's port
    POD.NAME.NAMESPACE:PORT       virtual host of a pod of a StatefulSet
    closed:NAME.NAMESPACE         virtual host of the ports that an external service does not have
    addresses, anywhere           virtual hosts of addresses of pods, and of what nothing speaks of
    HOST                          virtual host at a gateway
    421|elsewhere                 virtual host of what other listeners of a port serve
    map|ADDRESS:PORT              listener, chain, and route configuration or forward of a mapped
                                  port; of UDP with /udp behind it
    grpc|VIRTUAL-HOST             route configuration of a gRPC application for one virtual host
    LISTENER|ROUTE                where the connections of a listener go that a route takes, and
                                  their chain; CHAIN|ROUTE where listeners share a port
    LISTENER|nowhere              the same, of connections that no route takes
"""

from __future__ import annotations

from pilothouse.model import keys
from pilothouse.model import mapped as ports

HTTP_PROXY = "http-proxy"
DEFAULT_ROUTE = "default"


def inbound(port: int, *, udp: bool = False) -> str:
    """The application's port, at its sidecar."""
    return f"inbound|{port}/udp" if udp else f"inbound|{port}"


MISDIRECTED = "421|elsewhere"


def gateway(port: int, *, udp: bool = False) -> str:
    """A gateway's port."""
    return f"gateway|{port}/udp" if udp else f"gateway|{port}"


def gateway_listener(port: int, key: keys.ObjectKey, listener: str) -> str:
    """A listener of a MeshGateway, where it shares a port."""
    return f"{gateway(port)}|{key.name}.{key.namespace}|{listener}"


def nowhere(listener: str) -> str:
    """Where the connections of a listener go that no route takes."""
    return f"{listener}|nowhere"


def mapped(port: ports.MappedPort) -> str:
    """A mapped port of a sidecar."""
    return f"map|{port.place}"


def virtual_host(key: keys.ServiceKey, *, port: int, external: bool) -> str:
    """The requests for one port of a service or external service."""
    return f"{'external:' if external else ''}{key.name}.{key.namespace}:{port}"


def proxyless(virtual_host: str) -> str:
    """The routes to one virtual host, for applications without a proxy."""
    return f"grpc|{virtual_host}"


def forward(listener: str, route: str) -> str:
    """Where the connections go that a route takes at a listener."""
    return f"{listener}|{route}"


def route(rule: keys.ObjectKey, *, position: int, name: str, family: str = "http") -> str:
    """A route of a rule; its position counts from 0 in its family, as in field paths."""
    place = f"{rule}/{position}" if family == "http" else f"{rule}/{family}/{position}"
    return f"{place}/{name}" if name else place
