# SPDX-License-Identifier: Apache-2.0
"""Filters: rules switch them on, and listeners stay as they are."""

import pytest

from pilothouse.envoy import translate
from pilothouse.xds import types
from tests.support import independent, meshes

FEATURES = [
    "fault: {abort: {httpStatus: 503, percent: 0.5}}",
    "cors: {allowOrigins: [{exact: '*'}]}",
    "rateLimit: {requests: 1}",
    "maxRequestBytes: 1",
    "compress: true",
]


def snapshot(route: str):
    """What a sidecar holds when this route is the only rule."""
    mesh = meshes.mesh(
        meshes.service("a"),
        meshes.rule("r", f"{{parents: [{{service: a}}], http: [{{{route}}}]}}"),
    )
    return translate.Translator().snapshot(meshes.planned(mesh, meshes.sidecar()), {})


@pytest.mark.parametrize("feature", FEATURES)
def test_a_rule_that_needs_a_filter_changes_routes_only(feature: str):
    """The listener's bytes are the same, so no connection is closed."""
    without, with_it = snapshot("timeout: 1s"), snapshot(f"timeout: 1s, {feature}")
    for kind, same in ((types.LISTENER, True), (types.ROUTE, False)):
        bodies = [
            [each.body for each in held.resources(kind.type_url).values()]
            for held in (without, with_it)
        ]
        assert (bodies[0] == bodies[1]) is same, kind


def test_every_filter_but_the_router_is_switched_off():
    """So a route that asks for none pays for none."""
    (body,) = (
        each.body
        for each in snapshot("timeout: 1s").resources(types.LISTENER.type_url).values()
        if each.name == "http-proxy"
    )
    listener = independent.listener.Listener.parse(body)
    manager = independent.connection_manager.HttpConnectionManager.parse(
        listener.filter_chains[0].filters[0].typed_config.value
    )
    *others, router = manager.http_filters
    assert (router.name, router.disabled) == ("envoy.filters.http.router", False)
    assert all(each.disabled for each in others)


def test_half_a_per_cent_as_others_read_it():
    """Shares below one per cent are not rounded."""
    (body,) = (
        each.body
        for each in snapshot(FEATURES[0]).resources(types.ROUTE.type_url).values()
        if each.name == "http-proxy"
    )
    hosts = independent.route.RouteConfiguration.parse(body).virtual_hosts
    (config,) = hosts[0].routes[0].typed_per_filter_config.values()
    fault = independent.fault.HttpFault.parse(config.value)
    assert fault.abort.percentage.numerator == 5_000
    assert fault.abort.percentage.denominator.name == "MILLION"
