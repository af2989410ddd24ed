# SPDX-License-Identifier: Apache-2.0
"""The virtual hosts of a gateway's listeners for HTTP.

Listeners for plain HTTP at one port share it and their hosts: a request tells its host, and no
listener is between. With TLS each listener has routes of its own, for the connection was made by
its rules (certificates, those of clients): a request that comes over it for a host of another
listener is answered 421, and the client may connect anew (RFC 9110, section 15.5.20).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pilothouse.model import keys
from pilothouse.routing import (
    catalogue,
    clusters,
    gateway_ports,
    names,
    parsed,
    patterns,
    plan,
    routes,
    rules,
)
from pilothouse.routing import memo as memory

_MISDIRECTED = 421
_LISTED = 100
"""Hosts of others that a listener tells from hosts of nobody."""
_MOVED = 301
_HTTPS_PORT = 443


def hosts_of(listener: gateway_ports.OpenListener, attached: rules.Attached) -> tuple[str, ...]:
    """The hosts that an attached rule serves at a listener."""
    if not attached.bound.rule.routes:
        return ()
    hosts = attached.bound.rule.hosts or listener.hosts
    both = {patterns.intersect(ours, theirs) for ours in listener.hosts for theirs in hosts}
    return tuple(sorted(host for host in both if host is not None))


def hosts(
    memo: memory.Memo,
    place: str,
    listeners: tuple[gateway_ports.OpenListener, ...],
    owners: Mapping[str, gateway_ports.OpenListener],
) -> list[routes.Host]:
    """The hosts that rules make, sorted by name.

    Args:
        memo: Remembers them.
        place: Name of their route configuration.
        listeners: Whose rules these are.
        owners: Listeners by host; what is another's, or redirects all requests, is left out.
    """
    by_host: dict[str, dict[keys.ObjectKey, rules.Bound]] = {}
    origins: dict[str, set[keys.ObjectKey]] = {}
    ours = {id(one) for one in listeners}
    for one in listeners:
        for attached in one.attached():
            for host in hosts_of(one, attached):
                owner = gateway_ports.owner(owners, host)
                if owner is not None and not _is_routed(owner, ours):
                    continue
                bounds, key = by_host.setdefault(host, {}), attached.bound.rule.key
                before = bounds.get(key, attached.bound)
                bounds[key] = rules.together(before, attached.bound)
                origins.setdefault(host, set()).update(one.served.gateway.origins)
    site = catalogue.Site(port=listeners[0].listener.port, gateway=True)
    found = []
    for host in sorted(by_host):
        slot = (place, host)
        bound = tuple(by_host[host].values())
        routed = memo.group(routes.route_host, slot, site, (), bound)
        sources = tuple(sorted(origins[host]))
        found.append(memo.leaf(routes.host, slot, host, (host,), routed, sources))
    return found


def _is_routed(owner: gateway_ports.OpenListener, ours: set[int]) -> bool:
    return id(owner) in ours and owner.listener.redirect_port is None


def in_scope(
    memo: memory.Memo, place: str, host: routes.Host, scoped: clusters.Scoped
) -> plan.VirtualHost:
    """A host with the clusters that the gateway's namespace has of its own."""
    hits = tuple((key, scoped[key]) for key in host.routed.uses if key in scoped)
    if not hits:
        return host.virtual_host
    slot = (place, host.virtual_host.name)
    return memo.leaf(routes.rescope, slot, host.virtual_host, hits)


def redirects(listeners: Iterable[gateway_ports.OpenListener]) -> list[plan.VirtualHost]:
    """The hosts whose requests are all sent to https."""
    return [
        _redirect(host, one.listener.redirect_port, one.served.gateway.origins)
        for one in listeners
        if one.listener.redirect_port is not None
        for host in one.hosts
    ]


def _redirect(host: str, port: int, origins: plan.Origins) -> plan.VirtualHost:
    action = plan.Redirect(code=_MOVED, scheme="https", port=None if port == _HTTPS_PORT else port)
    route = plan.Route(
        name=names.DEFAULT_ROUTE, match=parsed.ANYTHING, action=action, origins=origins
    )
    return plan.VirtualHost(name=host, domains=(host,), routes=(route,), origins=origins)


def elsewhere(
    listener: gateway_ports.OpenListener,
    owners: Mapping[str, gateway_ports.OpenListener],
    served: Iterable[str],
) -> list[plan.VirtualHost]:
    """What a listener answers for hosts of others of its port, and for its own without a route.

    A port with thousands of listeners must not have the hosts of all in the routes of each. Beyond
    some number those of others are not listed: whatever is not its own may be theirs.

    Args:
        listener: The listener.
        owners: All listeners of the port by host.
        served: Hosts of its own that have routes.
    """
    others = _others(listener, owners)
    if not others:
        return []
    route = plan.Route(
        name=names.DEFAULT_ROUTE,
        match=parsed.ANYTHING,
        action=plan.DirectResponse(status=_MISDIRECTED),
    )
    # Else a host of its own would be taken for one of theirs that have a wider pattern around it.
    bare = sorted({*listener.hosts} - {*served})
    return [
        plan.VirtualHost(name=names.MISDIRECTED, domains=others, routes=(route,)),
        *(plan.VirtualHost(name=host, domains=(host,), routes=()) for host in bare),
    ]


def _others(
    listener: gateway_ports.OpenListener, owners: Mapping[str, gateway_ports.OpenListener]
) -> tuple[str, ...]:
    """The hosts of others, sorted; ``*`` stands for many, where it is not the listener's own."""
    own = {host: host for host in listener.hosts}
    many = len(owners) - len(own) > _LISTED and "*" not in own
    if many and not any(host.startswith("*.") for host in own):
        return ("*",)
    others = (host for host in owners if host not in own)
    if many:  # what lies within its own patterns is theirs all the same
        within = (host for host in others if gateway_ports.owner(own, host) is not None)
        return ("*", *sorted(within))
    return tuple(sorted(others))
