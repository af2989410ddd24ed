# SPDX-License-Identifier: Apache-2.0
"""The constraints that Envoy's protos state. What must come out is what the .proto files say."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import any_pb2, message

from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.config.core.v3 import address_pb2, base_pb2
from pilothouse.api.envoy.config.endpoint.v3 import endpoint_pb2
from pilothouse.api.envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from pilothouse.api.envoy.config.route.v3 import route_components_pb2, route_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,
)
from pilothouse.envoy.gate import constraints

# Untyped, because the stubs do not know that a message may be written as a dictionary.
RouteConfiguration: Any = route_pb2.RouteConfiguration
Listener: Any = listener_pb2.Listener
Route: Any = route_components_pb2.Route
_Manager: Any = http_connection_manager_pb2.HttpConnectionManager
Assignment: Any = endpoint_pb2.ClusterLoadAssignment
Address: Any = address_pb2.Address


def cluster(**more: Any) -> cluster_pb2.Cluster:
    """One that keeps every constraint, before the changes."""
    return cluster_pb2.Cluster(name="c", **more)


def route(**more: Any) -> Any:
    """A route of everything to one cluster, before the changes."""
    made = Route(**more)
    if not made.HasField("match"):
        made.match.prefix = "/"
    if made.WhichOneof("action") is None:
        made.route.cluster = "c"
    return made


def host(*routes: Any) -> Any:
    """A route configuration with one virtual host."""
    virtual_host = route_components_pb2.VirtualHost(name="h", domains=["*"], routes=routes)
    return RouteConfiguration(name="r", virtual_hosts=[virtual_host])


def packed(value: message.Message) -> any_pb2.Any:
    made = any_pb2.Any()
    made.Pack(value)
    return made


def listener(manager: Any) -> Any:
    """A listener with one connection manager."""
    filter_ = listener_components_pb2.Filter(name="hcm", typed_config=packed(manager))
    chain = listener_components_pb2.FilterChain(filters=[filter_])
    return Listener(name="l", filter_chains=[chain])


def match(**more: Any) -> Any:
    return route(match=route_components_pb2.RouteMatch(**more))


HEADER = base_pb2.HeaderValueOption(header=base_pb2.HeaderValue(key="x\n", value="v"))
_AT = "virtual_hosts[0].routes[0]"

RIGHT = {
    "cluster": cluster(connect_timeout={"nanos": 1}),
    "an unset duration": cluster(),
    "route": host(route()),
    "no virtual hosts": RouteConfiguration(),
    "an unchosen field with a rule": host(match(path="/a")),
    "header without line breaks": host(
        route(
            request_headers_to_add=[
                {"header": {"key": "x-odd (name)", "value": ""}},
            ]
        )
    ),
    "a wrapper at its limit": cluster(
        ring_hash_lb_config={"minimum_ring_size": {"value": 8388608}}
    ),
    "manager": listener(_Manager(stat_prefix="p", rds={"config_source": {"ads": {}}})),
    "an extension that is not known here": Listener(
        name="l",
        access_log=[
            {
                "name": "a",
                "typed_config": {"type_url": "type.googleapis.com/no.Such", "value": b"?"},
            }
        ],
    ),
}

WRONG: dict[str, tuple[message.Message, list[tuple[str, str]]]] = {
    "min_len": (cluster_pb2.Cluster(), [("name", "must have at least 1 characters")]),
    "duration gt": (
        cluster(connect_timeout={}),
        [("connect_timeout", "must be more than 0s")],
    ),
    "defined_only": (cluster(lb_policy=77), [("lb_policy", "must be a defined value")]),
    "wrapper lte": (
        cluster(ring_hash_lb_config={"minimum_ring_size": {"value": 8388609}}),
        [("ring_hash_lb_config.minimum_ring_size", "must be at most 8388608")],
    ),
    "min_items": (
        RouteConfiguration(virtual_hosts=[{"name": "h"}]),
        [("virtual_hosts[0].domains", "must have at least 1 items")],
    ),
    "message required": (
        RouteConfiguration(
            virtual_hosts=[{"name": "h", "domains": ["*"], "routes": [{"redirect": {}}]}]
        ),
        [(f"{_AT}.match", "must be set")],
    ),
    "oneof required": (
        host(Route(match={"prefix": "/"}, route=route_components_pb2.RouteAction())),
        [(f"{_AT}.route.cluster_specifier", "one of its fields must be set")],
    ),
    "uint32 range": (
        host(route(direct_response=route_components_pb2.DirectResponseAction(status=600))),
        [(f"{_AT}.direct_response.status", "must be less than 600")],
    ),
    "header name": (
        host(route(request_headers_to_add=[HEADER])),
        [(f"{_AT}.request_headers_to_add[0].header.key", "must be a header name")],
    ),
    "items": (
        host(route(request_headers_to_remove=["a\0"])),
        [(f"{_AT}.request_headers_to_remove[0]", "must be a header name")],
    ),
    "max_bytes": (
        host(route(response_headers_to_add=[{"header": {"key": "k" * 16385}}])),
        [
            (
                f"{_AT}.response_headers_to_add[0].header.key",
                "must have at most 16384 bytes",
            )
        ],
    ),
    "pattern": (
        host(match(path_separated_prefix="/a/")),
        [(f"{_AT}.match.path_separated_prefix", "must match ^[^?#]+[^?#/]$")],
    ),
    "pattern at a line's end": (
        host(match(path_separated_prefix="/a?\n")),
        [(f"{_AT}.match.path_separated_prefix", "must match ^[^?#]+[^?#/]$")],
    ),
    "in an extension": (
        listener(_Manager(rds={"config_source": {"ads": {}}})),
        [
            (
                "filter_chains[0].filters[0].typed_config.stat_prefix",
                "must have at least 1 characters",
            )
        ],
    ),
    "an extension that is no message": (
        Listener(
            filter_chains=[
                {
                    "filters": [
                        {
                            "name": "f",
                            "typed_config": {
                                "type_url": f"type.googleapis.com/{_Manager.DESCRIPTOR.full_name}",
                                "value": b"\xff",
                            },
                        }
                    ]
                }
            ]
        ),
        [
            (
                "filter_chains[0].filters[0].typed_config",
                f"must be a {_Manager.DESCRIPTOR.full_name}",
            )
        ],
    ),
    "several at once": (
        Assignment(endpoints=[{"priority": 129, "load_balancing_weight": {}}]),
        [
            ("cluster_name", "must have at least 1 characters"),
            ("endpoints[0].load_balancing_weight", "must be at least 1"),
            ("endpoints[0].priority", "must be at most 128"),
        ],
    ),
    "port": (
        Address(socket_address={"address": "::1", "port_value": 65536}),
        [("socket_address.port_value", "must be at most 65535")],
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_keeps_the_constraints_is_right(name: str) -> None:
    """Unset fields have no limits, and of a choice only the chosen field has."""
    assert constraints.broken(RIGHT[name]) == ()


@pytest.mark.parametrize("name", WRONG)
def test_what_breaks_them_is_told(name: str) -> None:
    """With the field's path, and in the proto's own terms; never with the value."""
    value, expected = WRONG[name]
    found = sorted((one.path, one.rule) for one in constraints.broken(value))
    assert found == sorted(expected)
