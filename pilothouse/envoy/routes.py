# SPDX-License-Identifier: Apache-2.0
"""Route configurations: which cluster a request takes, or what it is answered.

A route configuration on the wire is its own few fields around its encoded virtual hosts, so one
changed virtual host costs the encoding of that one, and a join.

The share of a route whose destination cannot be resolved must be answered with 500 while the other
destinations keep their shares. Envoy has no direct response inside weighted clusters, so that share
goes to a cluster that never exists, and the route says 500 for "cluster not found". Every other
route keeps Envoy's 503 for that.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Final, assert_never

from pilothouse.api.envoy.config.route.v3 import route_components_pb2, route_pb2
from pilothouse.envoy import access_logs, filters, headers, matches, wire
from pilothouse.envoy import route_actions as actions
from pilothouse.routing import plan, treatment
from pilothouse.xds import resources, types

_MAX_BODY: Final = 4096
"""Bytes; the default of `max_direct_response_body_size_bytes` of a route configuration."""
_SHORTENED: Final = " ...\n"
_REQUEST_METHOD: Final = "access-control-request-method"
_VIRTUAL_HOSTS_TAG: Final = b"\x12"  # field 2, length-delimited


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A virtual host as it lies inside its route configuration."""

    encoded: bytes
    """With tag and length, so that chunks are joined as they are."""
    clusters: tuple[str, ...]
    """Names of the clusters that its routes send requests to, sorted."""
    origins: plan.Origins
    """Of the virtual host and of its routes, sorted."""


def message(
    configuration: plan.RouteConfiguration, *, ignore_port: bool = False
) -> route_pb2.RouteConfiguration:
    """The route configuration as one message: for the few who look at it, not for the wire."""
    made = route_pb2.RouteConfiguration(
        name=configuration.name,
        ignore_port_in_host_matching=ignore_port,
    )
    for host in configuration.virtual_hosts:
        _fill_virtual_host(made.virtual_hosts.add(), host)
    return made


def resource(
    name: str, chunks: Sequence[Chunk], *, ignore_port: bool = False
) -> resources.Resource:
    """A route configuration as a resource for RDS, of the chunks of its virtual hosts, in order.

    With ``ignore_port`` a port in the Host header takes no part in matching. The header itself
    stays, so that the application and a redirect see the port that the client used.
    """
    # In the order of Envoy's field numbers: name is 1, virtual hosts are 2, the rest is higher.
    before = wire.encode(route_pb2.RouteConfiguration(name=name))
    behind = wire.encode(route_pb2.RouteConfiguration(ignore_port_in_host_matching=ignore_port))
    clusters = set[str]().union(*[chunk.clusters for chunk in chunks])
    return resources.Resource.joined(
        types.ROUTE.type_url,
        name,
        (before, *[chunk.encoded for chunk in chunks], behind),
        references=[(types.CLUSTER.type_url, cluster) for cluster in clusters],
        origins=itertools.chain.from_iterable([chunk.origins for chunk in chunks]),
    )


def chunk(host: plan.VirtualHost) -> Chunk:
    """Encode a virtual host, once for all route configurations that hold it."""
    made = route_components_pb2.VirtualHost()
    clusters = _fill_virtual_host(made, host)
    body = wire.encode(made)
    return Chunk(
        encoded=b"".join((_VIRTUAL_HOSTS_TAG, _varint(len(body)), body)),
        clusters=tuple(sorted(clusters)),
        origins=_merged((host.origins, *(route.origins for route in host.routes))),
    )


def _fill_virtual_host(made: route_components_pb2.VirtualHost, host: plan.VirtualHost) -> set[str]:
    """The routes of some domains, in the plan's order; gives the clusters that they send to.

    Messages are filled in place here: there are many, and copying nested ones takes half the time.
    """
    made.name = host.name
    made.domains.extend(host.domains)
    shared = _shared_retry(host)
    if shared is not None:
        made.retry_policy.CopyFrom(actions.retry_policy(shared))
    clusters: set[str] = set()
    for planned in host.routes:
        operation = f"{host.name}/{planned.name}"
        for route in _variants(planned):
            clusters.update(_fill_route(made.routes.add(), route, operation, shared=shared))
    return clusters


def _shared_retry(host: plan.VirtualHost) -> plan.Retry | None:
    """The retries of all routes of a host that send requests on, if it has several.

    The virtual host says them then. In each of three routes they are 40 % of the bytes, and a fifth
    of the time that Envoy takes. A route that says none would have those of its host, so all or
    nothing: Envoy joins no two policies.
    """
    found = [route.action.retry for route in host.routes if isinstance(route.action, plan.Forward)]
    if len(found) < 2 or found[0] is None or not found[0].attempts:
        return None
    return found[0] if all(one == found[0] for one in found) else None


def _variants(route: plan.Route) -> tuple[plan.Route, ...]:
    """The routes that do together what the planned one says."""
    preflights = () if route.treatment.cors is None else _preflights(route)
    return tuple(one for each in (*preflights, *_tunnels(route), route) for one in _redirects(each))


def _tunnels(route: plan.Route) -> tuple[plan.Route, ...]:
    """The route for CONNECT requests, where the planned one takes them: they have no path."""
    match route:
        case plan.Route(
            action=plan.Forward(connect=True),
            match=plan.RouteMatch(path_kind="any", method="" | "CONNECT", query=()),
        ):
            tunnel = dataclasses.replace(route.match, path_kind="connect", method="")
            return (dataclasses.replace(route, match=tunnel),)
        case _:
            return ()


def _redirects(route: plan.Route) -> tuple[plan.Route, ...]:
    """The route, and before it what becomes of the port where the scheme changes.

    A redirect to another scheme drops the request's port. Envoy drops only the old scheme's default
    one, so where there is a port, and the scheme does change, the new scheme's default is said.
    """
    match route.action:
        case plan.Redirect(scheme=("http" | "https") as scheme, host=None, port=None):
            other = "http" if scheme == "https" else "https"
            changes = dataclasses.replace(
                route.match,
                headers=(
                    *route.match.headers,
                    plan.HeaderMatch(name=":authority", kind="regex", value=".*:[0-9]+"),
                    plan.HeaderMatch(name=":scheme", kind="exact", value=other),
                ),
            )
            to_default = dataclasses.replace(route.action, port=actions.DEFAULT_PORTS[scheme])
            return (dataclasses.replace(route, match=changes, action=to_default), route)
        case _:
            return (route,)


def _preflights(route: plan.Route) -> tuple[plan.Route, ...]:
    """The route for the preflights of its requests, where these would not match themselves.

    A preflight is an OPTIONS, has none of the headers, and names the method that shall follow.
    """
    match = route.match
    asked = tuple(header for header in match.headers if header.name.startswith(":"))
    if asked == match.headers and match.method in ("", "OPTIONS"):
        return ()
    method = (
        plan.HeaderMatch(name=_REQUEST_METHOD, kind="exact", value=match.method)
        if match.method
        else plan.HeaderMatch(name=_REQUEST_METHOD, kind="present")
    )
    origin = plan.HeaderMatch(name="origin", kind="present")
    preflight = dataclasses.replace(match, method="OPTIONS", headers=(*asked, method, origin))
    return (dataclasses.replace(route, match=preflight),)


def _fill_route(
    made: route_components_pb2.Route,
    route: plan.Route,
    operation: str,
    *,
    shared: plan.Retry | None,
) -> Collection[str]:
    made.name = route.name
    matches.fill(made.match, route.match)
    route = headers.pushed_down(route)
    if route.treatment is not treatment.NOTHING:
        headers.fill(made, route.treatment)
        filters.fill(made, route.treatment)
    made.stat_prefix = route.stat_prefix
    if not route.logged:
        access_logs.leave_out(made)
    # Names the span here. Not propagated: the next proxy names its own, and a host outside is not
    # told our names.
    made.decorator.operation = operation
    made.decorator.propagate.value = False
    match route.action:
        case plan.Forward() as forward:
            if forward.asked:
                filters.find_address(made)
            if shared is None and forward.retry is not None and forward.retry.attempts:
                made.route.retry_policy.CopyFrom(actions.retry_policy(forward.retry))
            return actions.fill_forward(made.route, forward, route.match)
        case plan.Redirect() as redirect:
            actions.fill_redirect(made.redirect, redirect, route.match)
        case plan.DirectResponse(status=status, body=body, data=data):
            made.direct_response.status = status
            if data:
                made.direct_response.body.inline_bytes = data
            elif body:
                made.direct_response.body.inline_string = _shortened(body)
        case _:
            assert_never(route.action)
    return ()


def _shortened(body: str) -> str:
    """A body that Envoy takes: with a longer one it refuses the whole route configuration."""
    encoded = body.encode()
    if len(encoded) <= _MAX_BODY:
        return body
    kept = _MAX_BODY - len(_SHORTENED.encode())
    return encoded[:kept].decode(errors="ignore") + _SHORTENED


def _merged(origins: Iterable[plan.Origins]) -> plan.Origins:
    return tuple(sorted({origin for each in origins for origin in each}))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
