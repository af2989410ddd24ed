# SPDX-License-Identifier: Apache-2.0
"""What an Envoy does with a request, worked out from its configuration by Envoy's documentation.

It reads the very bytes that Envoy is sent. Names of clusters are read by their published grammar.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, TypeVar
from urllib import parse

from google.protobuf import duration_pb2, message

from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.config.endpoint.v3 import endpoint_pb2
from pilothouse.api.envoy.config.listener.v3 import listener_pb2
from pilothouse.api.envoy.config.route.v3 import route_components_pb2, route_pb2
from pilothouse.api.envoy.extensions.filters.http.buffer.v3 import buffer_pb2
from pilothouse.api.envoy.extensions.filters.http.fault.v3 import fault_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,
)
from pilothouse.api.envoy.extensions.path.rewrite.uri_template.v3 import uri_template_rewrite_pb2
from pilothouse.api.envoy.type.v3 import percent_pb2
from tests.support import reference_values as values
from tests.support import reference_walker_matches as matches

M = TypeVar("M", bound=message.Message)

_CODES = {0: 301, 1: 302, 2: 303, 3: 307, 4: 308}
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_Action = route_components_pb2.RouteAction | route_components_pb2.RedirectAction
_Changing = route_components_pb2.Route | route_components_pb2.WeightedCluster.ClusterWeight


@dataclasses.dataclass(frozen=True)
class Envoy:
    """The configuration of a listener."""

    listener: listener_pb2.Listener
    routes: route_pb2.RouteConfiguration
    clusters: Mapping[str, cluster_pb2.Cluster]
    endpoints: Mapping[str, endpoint_pb2.ClusterLoadAssignment]

    def verdict(self, request: values.Request) -> values.Verdict:
        """What becomes of a request."""
        seen = self._arrived(request)
        host = matches.virtual_host(self.routes, seen.authority)
        route = matches.route(host, seen) if host else None
        if host is None or route is None:
            return values.Verdict(status=404)
        parts = _treatment(route, seen)
        match route.WhichOneof("action"):
            case "redirect":
                return values.Verdict(
                    status=_CODES[route.redirect.response_code],
                    location=_location(route, seen),
                    response_headers=_changed((), "response", route),
                    **parts,
                )
            case "direct_response":
                return values.Verdict(
                    status=route.direct_response.status,
                    body=route.direct_response.body.inline_string,
                    response_headers=_changed((), "response", route),
                    **parts,
                )
            case "route":
                return self._forward(route, seen, {**parts, "retry": _retry(route.route, host)})
            case other:
                raise ValueError(f"an action of kind {other}")

    def _arrived(self, request: values.Request) -> matches.Seen:
        manager = http_connection_manager_pb2.HttpConnectionManager()
        (chain,) = self.listener.filter_chains
        if not chain.filters[-1].typed_config.Unpack(manager):
            raise ValueError("a listener that is not for HTTP")
        authority, path = request.authority, request.path
        if manager.strip_trailing_host_dot:
            authority = values.without_trailing_dot(authority)
        if manager.strip_any_host_port:
            authority = re.sub(r":\d+$", "", authority)
        if manager.normalize_path.value and manager.merge_slashes:
            path = values.resolved_path(path)
        return matches.Seen(authority, path, request.method, request.scheme, request.headers)

    def _forward(
        self, route: route_components_pb2.Route, seen: matches.Seen, parts: dict[str, Any]
    ) -> values.Verdict:
        action = route.route
        return values.Verdict(
            shares=self._shares(route, seen),
            mirrors={
                self._target(each.cluster, action): fraction(each.runtime_fraction.default_value)
                for each in action.request_mirror_policies
            },
            path=_rewritten(action, route.match, seen.path),
            host=action.host_rewrite_literal or seen.authority,
            timeout_ms=_milliseconds(action.timeout),
            **parts,
        )

    def _shares(
        self, route: route_components_pb2.Route, seen: matches.Seen
    ) -> dict[values.Share, Fraction]:
        action = route.route
        sent = values.watched(seen.headers)
        found: dict[values.Share, int] = {}
        weighted = action.weighted_clusters.clusters or [
            route_components_pb2.WeightedCluster.ClusterWeight(name=action.cluster)
        ]
        for one in weighted:
            target = self._target(one.name, action)
            lost = target == values.NOWHERE
            share = values.Share(
                target=target,
                endpoints=self._addresses(one.name),
                # "weighted cluster, then route": each after the one before.
                request_headers=() if lost else _changed(sent, "request", one, route),
                response_headers=() if lost else _changed(values.ANSWER, "response", one, route),
            )
            weight = one.weight.value if action.weighted_clusters.clusters else 1
            found[share] = found.get(share, 0) + weight
        total = sum(found.values())
        return {share: Fraction(weight, total) for share, weight in found.items()}

    def _target(self, name: str, action: route_components_pb2.RouteAction) -> str:
        if name not in self.clusters:
            if action.cluster_not_found_response_code != action.INTERNAL_SERVER_ERROR:
                raise ValueError(f"there is no cluster {name}")
            return values.NOWHERE
        return target(name)

    def _addresses(self, name: str) -> tuple[str, ...] | None:
        cluster = self.clusters.get(name)
        if cluster is None:
            return None
        in_cluster = cluster.type != cluster_pb2.Cluster.EDS
        assigned = cluster.load_assignment if in_cluster else self.endpoints[name]
        found = [
            each.endpoint.address.socket_address
            for locality in assigned.endpoints
            for each in locality.lb_endpoints
        ]
        return tuple(sorted(f"{each.address}:{each.port_value}" for each in found))


def target(name: str) -> str:
    """What a cluster is of, by its name."""
    direction, port, labels, service, *_ = [*name.split("|"), "", ""]
    if direction != "outbound":
        raise ValueError(name)
    external = service.startswith("external:")
    one, _, namespace = service.removeprefix("external:").rpartition(".")
    words = [f"{namespace}/{one}:{port}"]
    words += [parse.unquote(each) for each in labels.split(",") if each]
    return " ".join((["external"] if external else []) + words)


def _treatment(route: route_components_pb2.Route, seen: matches.Seen) -> dict[str, Any]:
    """What filters do, and who says so."""
    configs = {
        name.rpartition(".")[2]: config for name, config in route.typed_per_filter_config.items()
    }
    limit = None
    if "buffer" in configs:
        limit = _unpacked(
            configs["buffer"], buffer_pb2.BufferPerRoute
        ).buffer.max_request_bytes.value
    fault = values.Fault()
    if "fault" in configs:
        said = _unpacked(configs["fault"], fault_pb2.HTTPFault)
        if all(matches.header(each, seen) for each in said.headers):
            fault = values.Fault(
                delay_ms=_milliseconds(said.delay.fixed_delay),
                delayed=fraction(said.delay.percentage) if said.HasField("delay") else Fraction(0),
                status=said.abort.http_status,
                aborted=fraction(said.abort.percentage) if said.HasField("abort") else Fraction(0),
            )
    return {
        "route": route.name,
        "max_request_bytes": limit,
        "fault": fault,
        "cors": "cors" in configs,
    }


def _unpacked(packed: Any, kind: type[M]) -> M:
    made = kind()
    if not packed.Unpack(made):
        raise ValueError(packed.type_url)
    return made


def _changed(before: values.Headers, side: str, *by: _Changing) -> values.Headers:
    """Headers as Envoy changes them: of each level, removals, then values that replace, then more.

    https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_conn_man/headers
    """
    option = base_pb2.HeaderValueOption
    found = list(before)
    for level in by:
        gone = getattr(level, f"{side}_headers_to_remove")
        found = [pair for pair in found if pair[0] not in gone]
        said = getattr(level, f"{side}_headers_to_add")
        for action in (option.OVERWRITE_IF_EXISTS_OR_ADD, option.APPEND_IF_EXISTS_OR_ADD):
            for each in said:
                if each.append_action == action:
                    if action == option.OVERWRITE_IF_EXISTS_OR_ADD:
                        found = [pair for pair in found if pair[0] != each.header.key]
                    found.append((each.header.key, each.header.value.replace("%%", "%")))
    return tuple(sorted(found, key=lambda pair: pair[0]))


def _milliseconds(duration: duration_pb2.Duration) -> int:
    return duration.seconds * 1_000 + duration.nanos // 1_000_000


def fraction(share: percent_pb2.FractionalPercent) -> Fraction:
    """A share of requests."""
    return Fraction(share.numerator, 100 * 100 ** int(share.denominator))


def _retry(
    action: route_components_pb2.RouteAction, host: route_components_pb2.VirtualHost
) -> values.Retry | None:
    """The retries that a route says, or else those of its virtual host: never of both."""
    if action.HasField("retry_policy"):
        policy = action.retry_policy
    elif host.HasField("retry_policy"):
        policy = host.retry_policy
    else:
        return None
    return values.Retry(
        attempts=policy.num_retries.value,
        retry_on=frozenset(policy.retry_on.split(",")),
        status_codes=tuple(policy.retriable_status_codes),
        per_try_timeout=_milliseconds(policy.per_try_timeout),
        per_try_idle_timeout=_milliseconds(policy.per_try_idle_timeout),
        previous_hosts=not policy.retry_host_predicate,
    )


def _rewritten(action: _Action, match: route_components_pb2.RouteMatch, whole: str) -> str:
    """The path after a rewrite; of the prefix, of an expression, or by a template."""
    path, mark, query = whole.partition("?")
    if action.prefix_rewrite:
        taken = match.prefix or match.path_separated_prefix or match.path
        path = action.prefix_rewrite + path[len(taken) :]
    elif action.HasField("regex_rewrite"):
        regex = action.regex_rewrite
        path = re.sub(regex.pattern.regex, regex.substitution, path)
    elif isinstance(action, route_components_pb2.RouteAction) and action.HasField(
        "path_rewrite_policy"
    ):
        config = _unpacked(
            action.path_rewrite_policy.typed_config,
            uri_template_rewrite_pb2.UriTemplateRewriteConfig,
        )
        found = re.fullmatch(matches.template_expression(matches.template_of(match)), path)
        assert found is not None
        named = found.groupdict()
        path = re.sub(r"\{(\w+)\}", lambda each: named[each.group(1)], config.path_template_rewrite)
    return path + mark + query


def _location(route: route_components_pb2.Route, seen: matches.Seen) -> str:
    """The URL of a redirect.

    The port of the request stays, unless a host or a port is said, or the scheme changes from the
    one whose default it is.
    """
    redirect = route.redirect
    scheme = redirect.scheme_redirect or seen.scheme
    port = f":{redirect.port_redirect}" if redirect.port_redirect else ""
    host = redirect.host_redirect
    if not host:
        bare = re.sub(r":\d+$", "", seen.authority)
        given = seen.authority[len(bare) :]
        dropped = port or (scheme != seen.scheme and given == _DEFAULT_PORTS[seen.scheme])
        host = bare if dropped else seen.authority
    path = seen.path
    if redirect.path_redirect:
        path = redirect.path_redirect + (seen.path[len(seen.path.partition("?")[0]) :])
    else:
        path = _rewritten(redirect, route.match, path)
    if redirect.strip_query:
        path = path.partition("?")[0]
    return values.canonical_location(f"{scheme}://{host}{port}{path}")
