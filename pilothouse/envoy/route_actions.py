# SPDX-License-Identifier: Apache-2.0
"""What a route does with its requests: sends them on, or answers with a redirect."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Final

from google.protobuf import wrappers_pb2

from pilothouse.api.envoy.config.route.v3 import route_components_pb2
from pilothouse.api.envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
from pilothouse.api.envoy.extensions.retry.priority.previous_priorities.v3 import (
    previous_priorities_config_pb2,
)
from pilothouse.envoy import filters, headers, matches, names, rewrites, wire
from pilothouse.routing import plan

STREAM_IDLE_TIMEOUT_MS: Final = 300_000
"""How long nothing may move on a stream at the edge; a route with a longer timeout extends it."""
DEFAULT_PORTS: Final[dict[str | None, int]] = {"http": 80, "https": 443}
"""Port of each scheme."""

_REDIRECT_CODES: Final = {
    301: route_components_pb2.RedirectAction.MOVED_PERMANENTLY,
    302: route_components_pb2.RedirectAction.FOUND,
    303: route_components_pb2.RedirectAction.SEE_OTHER,
    307: route_components_pb2.RedirectAction.TEMPORARY_REDIRECT,
    308: route_components_pb2.RedirectAction.PERMANENT_REDIRECT,
}
_OTHER_HOSTS: Final = route_components_pb2.RetryPolicy.RetryHostPredicate(
    name="envoy.retry_host_predicates.previous_hosts",
    typed_config=wire.packed(previous_hosts_pb2.PreviousHostsPredicate()),
)
_OTHER_PRIORITIES: Final = route_components_pb2.RetryPolicy.RetryPriority(
    name="envoy.retry_priorities.previous_priorities",
    typed_config=wire.packed(
        previous_priorities_config_pb2.PreviousPrioritiesConfig(update_frequency=1)
    ),
)
_HOST_SELECTION_ATTEMPTS: Final = 20
"""Draws until a host that has not been tried; then any will do. Of two hosts, one of which fails,
five draws would find the failing one again for one of sixty requests."""


def fill_forward(
    made: route_components_pb2.RouteAction, forward: plan.Forward, match: plan.RouteMatch
) -> Collection[str]:
    """Sends requests on, but for retries; gives the names of the clusters that they go to."""
    seconds, milliseconds = divmod(forward.timeout_ms, 1000)
    made.timeout.seconds, made.timeout.nanos = seconds, milliseconds * 1_000_000
    _fill_upgrades(made, forward, match)
    if forward.idle_timeout_ms is not None:
        made.idle_timeout.CopyFrom(wire.duration(forward.idle_timeout_ms))
    elif forward.timeout_ms > STREAM_IDLE_TIMEOUT_MS:
        made.idle_timeout.CopyFrom(made.timeout)  # else a listener's shorter one would end it
    if forward.rewrite is not None:
        rewrites.fill(made, forward.rewrite, match)
    clusters = [
        names.UNRESOLVED if share.cluster is None else names.cluster(share.cluster)
        for share in forward.clusters
    ]
    if len(clusters) == 1 and not headers.changed(forward.clusters[0]):
        made.cluster = clusters[0]
    else:
        for name, share in zip(clusters, forward.clusters, strict=True):
            entry = made.weighted_clusters.clusters.add(name=name)
            entry.weight.value = share.weight
            headers.fill(entry, share)
    if names.UNRESOLVED in clusters:
        made.cluster_not_found_response_code = (
            route_components_pb2.RouteAction.INTERNAL_SERVER_ERROR
        )
    mirrors = [names.cluster(mirror.cluster) for mirror in forward.mirrors]
    for name, mirror in zip(mirrors, forward.mirrors, strict=True):
        # The host stays the one that was asked for, so that the other end routes it alike.
        policy = made.request_mirror_policies.add(
            cluster=name, disable_shadow_host_suffix_append=True
        )
        policy.runtime_fraction.default_value.CopyFrom(filters.millionths(mirror.millionths))
    return [name for name in (*clusters, *mirrors) if name is not names.UNRESOLVED]


def _fill_upgrades(
    made: route_components_pb2.RouteAction, forward: plan.Forward, match: plan.RouteMatch
) -> None:
    """What requests may change to, where that is not what the listener says."""
    if not forward.websocket:
        made.upgrade_configs.add(upgrade_type="websocket").enabled.value = False
    if match.path_kind == "connect":
        made.upgrade_configs.add(upgrade_type="CONNECT").connect_config.SetInParent()


@functools.lru_cache(maxsize=256)
def retry_policy(retry: plan.Retry) -> route_components_pb2.RetryPolicy:
    """A retry policy; a mesh has many routes and few of these."""
    made = route_components_pb2.RetryPolicy(
        retry_on=",".join(retry.retry_on),
        num_retries=wrappers_pb2.UInt32Value(value=retry.attempts),
        retriable_status_codes=retry.status_codes,
    )
    if not retry.previous_hosts:
        made.retry_host_predicate.append(_OTHER_HOSTS)
        made.host_selection_retry_max_attempts = _HOST_SELECTION_ATTEMPTS
    if retry.other_priorities:
        made.retry_priority.CopyFrom(_OTHER_PRIORITIES)
    for header in retry.response_headers:
        matches.fill_header(made.retriable_headers.add(), header)
    if retry.per_try_timeout_ms is not None:
        made.per_try_timeout.CopyFrom(wire.duration(retry.per_try_timeout_ms))
    if retry.per_try_idle_timeout_ms is not None:
        made.per_try_idle_timeout.CopyFrom(wire.duration(retry.per_try_idle_timeout_ms))
    if retry.back_off_ms is not None:
        made.retry_back_off.base_interval.CopyFrom(wire.duration(retry.back_off_ms))
        if retry.max_back_off_ms is not None:
            made.retry_back_off.max_interval.CopyFrom(wire.duration(retry.max_back_off_ms))
    return made


def fill_redirect(
    made: route_components_pb2.RedirectAction, redirect: plan.Redirect, match: plan.RouteMatch
) -> None:
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
    implied = redirect.host and redirect.port == DEFAULT_PORTS.get(redirect.scheme)
    if redirect.port is not None and not implied:
        made.port_redirect = redirect.port
    if redirect.path is not None:
        made.path_redirect = redirect.path
    elif redirect.prefix is not None:
        rewrites.fill_prefix(made, redirect.prefix, match)
    made.strip_query = redirect.strip_query
