# SPDX-License-Identifier: Apache-2.0
"""The virtual hosts of a gateway's listeners for HTTP.

Listeners for plain HTTP at one port share it and their hosts: a request tells its host, and no
listener is between. With TLS each listener has routes of its own, for the connection was made by
its rules (certificates, those of clients): a request that comes over it for a host of another
listener is answered 421, and the client may connect anew (RFC 9110, section 15.5.20).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

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


class _Listener(NamedTuple):
    """What it takes to know which hosts a rule serves at a listener."""

    name: str
    allowed: tuple[str, ...]
    hosts: tuple[str, ...]
    origins: plan.Origins
    """Of its gateway."""


class _There(NamedTuple):
    """A rule at a host."""

    host: str
    bound: rules.Bound
    origins: plan.Origins


_Here = Mapping[Any, tuple[_There, ...]]
"""The rules at a host, in order, by whatever tells them apart; the older gateway's first."""


def hosts(
    memo: memory.Memo,
    place: str,
    listeners: tuple[gateway_ports.OpenListener, ...],
    owners: Mapping[str, gateway_ports.Owner],
) -> Iterable[routes.Host]:
    """The hosts that rules make, sorted by name.

    Args:
        memo: Remembers them.
        place: Name of their route configuration.
        listeners: Whose rules these are.
        owners: Listeners by host; what is another's, or redirects all requests, is left out.
    """
    ours = frozenset(one.owner for one in listeners)
    everywhere: list[Mapping[str, _Here]] = []
    for one in listeners:
        gateway = one.served.gateway
        listener = _Listener(one.listener.name, one.listener.allowed, one.hosts, gateway.origins)
        slot = (place, gateway.key, listener.name)
        served = memo.mapped(_served, slot, one.served.attached, listener, owners, ours)
        everywhere.append(memo.turned(slot, served))
    site = catalogue.Site(port=listeners[0].listener.port, gateway=True)
    return memo.mapped_group(_host, place, _together(everywhere), site).values()


def _together(everywhere: list[Mapping[str, _Here]]) -> Mapping[str, _Here]:
    """What the listeners have of each host, by host.

    A host of one listener, as nearly all are, has the very object that it has there.
    """
    found: dict[str, _Here] = {}
    for number, there in enumerate(everywhere):
        for host, here in there.items() if found else ():
            if host in found:
                more = {(number, key): some for key, some in here.items()}
                found[host] = {**found[host], **more}
            else:
                found[host] = here
        found = found or {**there}
    return {host: found[host] for host in sorted(found)}


def _served(
    attached: tuple[rules.Attached, ...],
    listener: _Listener,
    owners: Mapping[str, gateway_ports.Owner],
    ours: frozenset[gateway_ports.Owner],
) -> tuple[tuple[str, _There], ...]:
    """A rule at each host that it serves at a listener."""
    found = []
    for one in attached:
        allowed = parsed.allows(listener.allowed, one.bound.rule.key.namespace)
        if one.listener in ("", listener.name) and allowed:
            for host in _hosts_of(listener, one.bound.rule):
                owner = gateway_ports.owner(owners, host)
                if owner is None or (owner in ours and not owner.redirects):
                    found.append((host, _There(host, one.bound, listener.origins)))
    return tuple(found)


def _hosts_of(listener: _Listener, rule: parsed.Rule) -> tuple[str, ...]:
    if not rule.routes:
        return ()
    hosts = rule.hosts or listener.hosts
    both = {patterns.intersect(ours, theirs) for ours in listener.hosts for theirs in hosts}
    return tuple(sorted(host for host in both if host is not None))


def _host(
    memo: memory.Memo,
    here: _Here,
    site: catalogue.Site,
) -> routes.Host:
    bounds: dict[keys.ObjectKey, rules.Bound] = {}
    origins: set[keys.ObjectKey] = set()
    name = ""
    for some in here.values():
        for name, bound, of_gateway in some:  # noqa: B007  all have the same
            key = bound.rule.key
            bounds[key] = rules.together(bounds.get(key, bound), bound)
            origins.update(of_gateway)
    routed = routes.route_host(memo, site, (), tuple(bounds.values()))
    return routes.host(name, (name,), routed, tuple(sorted(origins)))


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
    owners: Mapping[str, gateway_ports.Owner],
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
    listener: gateway_ports.OpenListener, owners: Mapping[str, gateway_ports.Owner]
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
