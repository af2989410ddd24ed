# SPDX-License-Identifier: Apache-2.0
"""The names of what a plan holds, in one grammar: parts divided by ``|``, the kind first.

Cluster keys get their names from whoever translates the plan; the rest is named here::

    http-proxy                    listener and route configuration of a sidecar's HTTP proxy
    inbound|PORT                  listener, route configuration and virtual host of an
                                  application's port
    gateway|PORT                  listener and route configuration of a gateway's port
    NAME.NAMESPACE:PORT           virtual host of a service's port
    external:NAME.NAMESPACE:PORT  virtual host of an external service's port
    HOST                          virtual host at a gateway
    grpc|VIRTUAL-HOST             route configuration of a gRPC application for one virtual host
    LISTENER|ROUTE                where the connections of a listener go that a route takes
"""

from __future__ import annotations

from pilothouse.model import keys

HTTP_PROXY = "http-proxy"
DEFAULT_ROUTE = "default"


def inbound(port: int) -> str:
    """The application's port, at its sidecar."""
    return f"inbound|{port}"


def gateway(port: int) -> str:
    """A gateway's port."""
    return f"gateway|{port}"


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
