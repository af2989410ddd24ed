# SPDX-License-Identifier: Apache-2.0
"""Ports that are no HTTP, through the HTTP proxy of a sidecar.

An application connects to them by ``CONNECT NAME:PORT`` (RFC 9110, section 9.3.6), and the rules
for the port's connections say where it gets. They are routes of a virtual host like those for
requests, so a change of weights touches neither the listener nor a connection that is open.

What such a request tells of the connection is the name: it stands for the server name. Nothing is
known of addresses, so matches that ask for networks do not count.
"""

from __future__ import annotations

import re

from pilothouse.routing import (
    accepting,
    catalogue,
    connections,
    header_tests,
    names,
    plan,
    routes,
    rules,
)
from pilothouse.routing import memo as memory


def route(
    memo: memory.Memo,
    site: catalogue.Site,
    consumers: tuple[rules.Bound, ...],
    producers: tuple[rules.Bound, ...],
) -> routes.Routed:
    """Merge the rules of a port, whatever is spoken on it; see `routes.route_host`."""
    if site.transport == "http":
        return routes.route_host(memo, site, consumers, producers)
    fallback = None
    if site.itself is not None:
        share = plan.WeightedCluster(cluster=site.itself, weight=1)
        fallback = plan.TcpForward(name=names.DEFAULT_ROUTE, clusters=(share,))
    port = connections.Port(listener="", site=site, fallback=fallback)
    found = connections.connect(port, consumers, producers)
    return routes.Routed(
        routes=tuple(_route(chain) for chain in found.chains if not _is_local(chain.match)),
        uses=found.uses,
        extra=tuple((key, origins) for key, origins in found.extra if routes.is_extra(key)),
        shadows=found.shadows,
        origins=found.origins,
    )


def _is_local(match: accepting.ChainMatch) -> bool:
    """True when a match asks for what only a listener knows."""
    return bool(match.destinations or match.sources)


def _route(chain: connections.Chain) -> plan.Route:
    forward = chain.forward
    headers = (_host(chain.match.server_names),) if chain.match.server_names else ()
    return plan.Route(
        name=chain.route,
        match=plan.RouteMatch(path_kind="connect", headers=headers),
        action=plan.Forward(clusters=forward.clusters, idle_timeout_ms=forward.idle_timeout_ms),
        origins=forward.origins,
    )


def _host(server_names: tuple[str, ...]) -> header_tests.HeaderMatch:
    """A test of the host that a request names, without its port and the dot at its end."""
    patterns = (
        rf".+{re.escape(name[1:])}" if name.startswith("*.") else re.escape(name)
        for name in server_names
    )
    value = rf"(?i:{'|'.join(patterns)})\.?(?::[0-9]+)?"
    return header_tests.HeaderMatch(name=":authority", kind="regex", value=value)
