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
import functools
from collections.abc import Collection, Iterable, Sequence
from typing import Final, assert_never

from google.protobuf import wrappers_pb2

from pilothouse.api.envoy.config.route.v3 import route_components_pb2, route_pb2
from pilothouse.api.envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
from pilothouse.envoy import matches, names, wire
from pilothouse.routing import plan
from pilothouse.xds import resources, types

STREAM_IDLE_TIMEOUT_MS: Final = 300_000
"""How long nothing may move on a stream at the edge; a route with a longer timeout extends it."""

_MAX_BODY: Final = 4096
"""Bytes; the default of `max_direct_response_body_size_bytes` of a route configuration."""
_SHORTENED: Final = " ...\n"
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
    made = route_pb2.RouteConfiguration(
        name=configuration.name, ignore_port_in_host_matching=ignore_port
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
    clusters = {cluster for chunk in chunks for cluster in chunk.clusters}
    return resources.Resource.of(
        types.ROUTE.type_url,
        name,
        b"".join((before, *(chunk.encoded for chunk in chunks), behind)),
        references=tuple((types.CLUSTER.type_url, cluster) for cluster in sorted(clusters)),
        origins=_merged(chunk.origins for chunk in chunks),
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
    clusters: set[str] = set()
    for planned in host.routes:
        operation = f"{host.name}/{planned.name}"
        for route in _variants(planned):
            clusters.update(_fill_route(made.routes.add(), route, operation))
    return clusters


def _variants(route: plan.Route) -> tuple[plan.Route, ...]:
    """The routes that do together what the planned one says.

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
            to_default = dataclasses.replace(route.action, port=_DEFAULT_PORTS[scheme])
            return (dataclasses.replace(route, match=changes, action=to_default), route)
        case _:
            return (route,)


def _fill_route(
    made: route_components_pb2.Route, route: plan.Route, operation: str
) -> Collection[str]:
    made.name = route.name
    matches.fill(made.match, route.match)
    # Names the span here. Not propagated: the next proxy names its own, and a host outside is not
    # told our names.
    made.decorator.operation = operation
    made.decorator.propagate.value = False
    match route.action:
        case plan.Forward() as forward:
            return _fill_forward(made.route, forward)
        case plan.Redirect() as redirect:
            _fill_redirect(made.redirect, redirect)
        case plan.DirectResponse(status=status, body=body):
            made.direct_response.status = status
            if body:
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


def _fill_forward(made: route_components_pb2.RouteAction, forward: plan.Forward) -> Collection[str]:
    seconds, milliseconds = divmod(forward.timeout_ms, 1000)
    made.timeout.seconds, made.timeout.nanos = seconds, milliseconds * 1_000_000
    if forward.timeout_ms > STREAM_IDLE_TIMEOUT_MS:
        made.idle_timeout.CopyFrom(made.timeout)  # else a listener's shorter one would end it
    if forward.retry is not None and forward.retry.attempts:
        made.retry_policy.CopyFrom(_retry(forward.retry))
    clusters = [
        names.UNRESOLVED if share.cluster is None else names.cluster(share.cluster)
        for share in forward.clusters
    ]
    if len(clusters) == 1:
        made.cluster = clusters[0]
    else:
        for name, share in zip(clusters, forward.clusters, strict=True):
            entry = made.weighted_clusters.clusters.add(name=name)
            entry.weight.value = share.weight
    if names.UNRESOLVED in clusters:
        made.cluster_not_found_response_code = (
            route_components_pb2.RouteAction.INTERNAL_SERVER_ERROR
        )
    return [name for name in clusters if name is not names.UNRESOLVED]


@functools.lru_cache(maxsize=256)
def _retry(retry: plan.Retry) -> route_components_pb2.RetryPolicy:
    """A retry policy; a mesh has many routes and few of these."""
    made = route_components_pb2.RetryPolicy(
        retry_on=",".join(retry.retry_on),
        num_retries=wrappers_pb2.UInt32Value(value=retry.attempts),
        retry_host_predicate=(_OTHER_HOSTS,),
        host_selection_retry_max_attempts=_HOST_SELECTION_ATTEMPTS,
    )
    if retry.per_try_timeout_ms is not None:
        made.per_try_timeout.CopyFrom(wire.duration(retry.per_try_timeout_ms))
    return made


def _fill_redirect(made: route_components_pb2.RedirectAction, redirect: plan.Redirect) -> None:
    """A redirect, as far as Envoy's words reach.

    Envoy drops the port of the request when the host is replaced: whoever plans such a redirect
    says the port. The default port of a scheme is left out of the answer where the host is known,
    which is where Envoy can.
    """
    made.response_code = _REDIRECT_CODES[redirect.code]
    if redirect.scheme is not None:
        made.scheme_redirect = redirect.scheme
    if redirect.host is not None:
        made.host_redirect = redirect.host
    implied = redirect.host and redirect.port == _DEFAULT_PORTS.get(redirect.scheme)
    if redirect.port is not None and not implied:
        made.port_redirect = redirect.port
    if redirect.path is not None:
        made.path_redirect = redirect.path


def _merged(origins: Iterable[plan.Origins]) -> plan.Origins:
    return tuple(sorted({origin for each in origins for origin in each}))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
