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
from collections.abc import Iterable, Sequence
from typing import Final, assert_never

from google.protobuf import wrappers_pb2

from pilothouse.api.envoy.config.route.v3 import route_components_pb2, route_pb2
from pilothouse.api.envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
from pilothouse.api.envoy.type.matcher.v3 import regex_pb2, string_pb2
from pilothouse.envoy import names, wire
from pilothouse.routing import plan
from pilothouse.xds import resources, types

STREAM_IDLE_TIMEOUT_MS: Final = 300_000
"""How long nothing may move on a stream at the edge; a route with a longer timeout extends it."""

_VIRTUAL_HOSTS_TAG: Final = b"\x12"  # field 2, length-delimited
_REDIRECT_CODES: Final = {
    301: route_components_pb2.RedirectAction.MOVED_PERMANENTLY,
    302: route_components_pb2.RedirectAction.FOUND,
    303: route_components_pb2.RedirectAction.SEE_OTHER,
    307: route_components_pb2.RedirectAction.TEMPORARY_REDIRECT,
    308: route_components_pb2.RedirectAction.PERMANENT_REDIRECT,
}
_DEFAULT_PORTS: Final[dict[str | None, int]] = {"http": 80, "https": 443}
_OTHER_HOSTS: Final = route_components_pb2.RetryPolicy.RetryHostPredicate(
    name="envoy.retry_host_predicates.previous_hosts",
    typed_config=wire.packed(previous_hosts_pb2.PreviousHostsPredicate()),
)
_HOST_SELECTION_ATTEMPTS: Final = 5  # draws until a host that has not been tried; then any will do


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
    return route_pb2.RouteConfiguration(
        name=configuration.name,
        virtual_hosts=map(virtual_host, configuration.virtual_hosts),
        ignore_port_in_host_matching=ignore_port,
    )


def resource(
    configuration: plan.RouteConfiguration, chunks: Sequence[Chunk], *, ignore_port: bool = False
) -> resources.Resource:
    """The route configuration as a resource for RDS, of the chunks of its virtual hosts, in order.

    With ``ignore_port`` a port in the Host header takes no part in matching. The header itself
    stays, so that the application and a redirect see the port that the client used.
    """
    own = header(configuration, ignore_port=ignore_port)
    clusters = {cluster for chunk in chunks for cluster in chunk.clusters}
    return resources.Resource.of(
        types.ROUTE.type_url,
        configuration.name,
        b"".join((own[0], *(chunk.encoded for chunk in chunks), own[1])),
        references=tuple((types.CLUSTER.type_url, cluster) for cluster in sorted(clusters)),
        origins=_merged(chunk.origins for chunk in chunks),
    )


def header(configuration: plan.RouteConfiguration, *, ignore_port: bool) -> tuple[bytes, bytes]:
    """What lies before and behind the virtual hosts, in the order of Envoy's field numbers."""
    before = route_pb2.RouteConfiguration(name=configuration.name)
    behind = route_pb2.RouteConfiguration(ignore_port_in_host_matching=ignore_port)
    return wire.encode(before), wire.encode(behind)


def chunk(host: plan.VirtualHost) -> Chunk:
    """Encode a virtual host, once for all route configurations that hold it."""
    body = wire.encode(virtual_host(host))
    clusters = {
        names.cluster(share.cluster)
        for route in host.routes
        if isinstance(route.action, plan.Forward)
        for share in route.action.clusters
        if share.cluster is not None
    }
    return Chunk(
        encoded=b"".join((_VIRTUAL_HOSTS_TAG, _varint(len(body)), body)),
        clusters=tuple(sorted(clusters)),
        origins=_merged((host.origins, *(route.origins for route in host.routes))),
    )


def virtual_host(host: plan.VirtualHost) -> route_components_pb2.VirtualHost:
    """The routes of some domains, in the plan's order."""
    return route_components_pb2.VirtualHost(
        name=host.name,
        domains=host.domains,
        routes=[_route(route, f"{host.name}/{route.name}") for route in host.routes],
    )


def _route(route: plan.Route, operation: str) -> route_components_pb2.Route:
    made = route_components_pb2.Route(
        name=route.name,
        match=_match(route.match),
        # Names the span here. Not propagated: the next proxy names its own, and a host outside is
        # not told our names.
        decorator=route_components_pb2.Decorator(
            operation=operation, propagate=wrappers_pb2.BoolValue(value=False)
        ),
    )
    match route.action:
        case plan.Forward() as forward:
            made.route.CopyFrom(_forward(forward))
        case plan.Redirect() as redirect:
            made.redirect.CopyFrom(_redirect(redirect))
        case plan.DirectResponse(status=status, body=body):
            made.direct_response.status = status
            if body:
                made.direct_response.body.inline_string = body
        case _:
            assert_never(route.action)
    return made


def _match(match: plan.RouteMatch) -> route_components_pb2.RouteMatch:
    made = route_components_pb2.RouteMatch()
    match match.path_kind:
        case "any":
            made.prefix = "/"
        case "exact":
            made.path = match.path
        case "prefix":
            made.path_separated_prefix = match.path
        case "regex":
            made.safe_regex.regex = match.path
        case _:
            assert_never(match.path_kind)
    if match.method:
        made.headers.add(name=":method", string_match=string_pb2.StringMatcher(exact=match.method))
    made.headers.extend(map(_header, match.headers))
    return made


def _header(header: plan.HeaderMatch) -> route_components_pb2.HeaderMatcher:
    made = route_components_pb2.HeaderMatcher(name=header.name)
    match header.kind:
        case "exact":
            made.string_match.exact = header.value
        case "prefix":
            made.string_match.prefix = header.value
        case "regex":
            made.string_match.safe_regex.CopyFrom(regex_pb2.RegexMatcher(regex=header.value))
        case "present":
            made.present_match = True
        case "absent":
            made.present_match = False
        case _:
            assert_never(header.kind)
    return made


def _forward(forward: plan.Forward) -> route_components_pb2.RouteAction:
    made = route_components_pb2.RouteAction(timeout=wire.duration(forward.timeout_ms))
    if forward.timeout_ms > STREAM_IDLE_TIMEOUT_MS:
        made.idle_timeout.CopyFrom(made.timeout)  # else a listener's shorter one would end it
    if len(forward.clusters) == 1:
        made.cluster = _cluster(forward.clusters[0].cluster)
    else:
        for share in forward.clusters:
            entry = made.weighted_clusters.clusters.add(name=_cluster(share.cluster))
            entry.weight.value = share.weight
    if any(share.cluster is None for share in forward.clusters):
        made.cluster_not_found_response_code = (
            route_components_pb2.RouteAction.INTERNAL_SERVER_ERROR
        )
    if forward.retry is not None and forward.retry.attempts:
        made.retry_policy.CopyFrom(_retry(forward.retry))
    return made


def _cluster(key: plan.ClusterKey | None) -> str:
    return names.UNRESOLVED if key is None else names.cluster(key)


def _retry(retry: plan.Retry) -> route_components_pb2.RetryPolicy:
    made = route_components_pb2.RetryPolicy(
        retry_on=",".join(retry.retry_on),
        num_retries=wrappers_pb2.UInt32Value(value=retry.attempts),
        retry_host_predicate=(_OTHER_HOSTS,),
        host_selection_retry_max_attempts=_HOST_SELECTION_ATTEMPTS,
    )
    if retry.per_try_timeout_ms is not None:
        made.per_try_timeout.CopyFrom(wire.duration(retry.per_try_timeout_ms))
    return made


def _redirect(redirect: plan.Redirect) -> route_components_pb2.RedirectAction:
    """A redirect, as far as Envoy's words reach.

    Envoy drops the port of the request when the host is replaced, and keeps it (but for the other
    scheme's default) when the scheme is: whoever plans such a redirect says the port. The default
    port of a scheme is left out of the answer where the host is known, which is where Envoy can.
    """
    made = route_components_pb2.RedirectAction(response_code=_REDIRECT_CODES[redirect.code])
    if redirect.scheme is not None:
        made.scheme_redirect = redirect.scheme
    if redirect.host is not None:
        made.host_redirect = redirect.host
    implied = redirect.host and redirect.port == _DEFAULT_PORTS.get(redirect.scheme)
    if redirect.port is not None and not implied:
        made.port_redirect = redirect.port
    if redirect.path is not None:
        made.path_redirect = redirect.path
    return made


def _merged(origins: Iterable[plan.Origins]) -> plan.Origins:
    return tuple(sorted({origin for each in origins for origin in each}))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
