# SPDX-License-Identifier: Apache-2.0
"""The gate is as strict as Envoy where it speaks, and no stricter: asked of Envoy itself.

Each case is a small change of a configuration that Envoy takes.
"""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

from pilothouse.adapters import process
from pilothouse.api.envoy.config.bootstrap.v3 import bootstrap_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,
)
from pilothouse.envoy import wire
from pilothouse.envoy.gate import constraints

pytestmark = pytest.mark.envoy

Bootstrap: Any = bootstrap_pb2.Bootstrap
Manager: Any = http_connection_manager_pb2.HttpConnectionManager
_ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"


class Whole:
    """A static Envoy, in the parts that the cases change."""

    def __init__(self) -> None:
        self.cluster: Any = {"name": "c", "load_assignment": {"cluster_name": "c"}}
        self.route: Any = {"match": {"prefix": "/"}, "route": {"cluster": "c"}}
        self.host: Any = {"name": "h", "domains": ["*"], "routes": [self.route]}
        router = {"name": "router", "typed_config": {"type_url": _ROUTER}}
        self.manager: Any = {
            "stat_prefix": "p",
            "route_config": {"virtual_hosts": [self.host]},
            "http_filters": [router],
        }

    def message(self) -> Any:
        made = Bootstrap(static_resources={"clusters": [self.cluster]})
        listener = made.static_resources.listeners.add(name="l")
        listener.address.socket_address.address = "127.0.0.1"
        listener.address.socket_address.port_value = 0
        filter_ = listener.filter_chains.add().filters.add(name="hcm")
        filter_.typed_config.CopyFrom(wire.packed(Manager(**self.manager)))
        return made


def header(name: str, value: str = "v") -> Callable[[Whole], None]:
    """A header that is added."""

    def change(whole: Whole) -> None:
        whole.route["request_headers_to_add"] = [{"header": {"key": name, "value": value}}]

    return change


def match(**how: Any) -> Callable[[Whole], None]:
    return lambda whole: whole.route.update(match=how)


def action(**how: Any) -> Callable[[Whole], None]:
    return lambda whole: whole.route["route"].update(how)


def cluster(**how: Any) -> Callable[[Whole], None]:
    return lambda whole: whole.cluster.update(how)


def direct(status: int) -> Callable[[Whole], None]:
    def change(whole: Whole) -> None:
        del whole.route["route"]
        whole.route["direct_response"] = {"status": status}

    return change


CASES: dict[str, tuple[bool, Callable[[Whole], None]]] = {
    "nothing": (True, lambda _: None),
    "odd header": (True, header("x odd")),
    "header with a line break": (False, header("x\n")),
    "header value with a line break": (False, header("x", "a\nb")),
    "header value with a tab": (True, header("x", "a\tb")),
    "empty header name": (False, header("")),
    "long header name": (False, header("x" * 16385)),
    "no match": (False, lambda whole: whole.route.pop("match")),
    "empty prefix": (True, match(prefix="")),
    "path separated prefix": (True, match(path_separated_prefix="/a")),
    "path separated prefix with a slash": (False, match(path_separated_prefix="/a/")),
    "path separated prefix with a query": (False, match(path_separated_prefix="/a?b")),
    "no domains": (False, lambda whole: whole.host.update(domains=[])),
    "no name of a host": (False, lambda whole: whole.host.update(name="")),
    "no cluster": (False, lambda whole: whole.route["route"].clear()),
    "retry of zero": (True, action(retry_policy={"num_retries": {"value": 0}})),
    "back-off of zero": (False, action(retry_policy={"retry_back_off": {"base_interval": {}}})),
    "status 200": (True, direct(200)),
    "status 199": (False, direct(199)),
    "status 600": (False, direct(600)),
    "negative timeout": (False, cluster(connect_timeout={"seconds": -1})),
    "zero timeout": (False, cluster(connect_timeout={})),
    "no such balancer": (False, cluster(lb_policy=77)),
    "large ring": (
        False,
        cluster(lb_policy=2, ring_hash_lb_config={"minimum_ring_size": {"value": 8388609}}),
    ),
    "no prefix of statistics": (False, lambda whole: whole.manager.update(stat_prefix="")),
    "too many headers per request": (
        False,
        lambda whole: whole.manager.update(max_request_headers_kb={"value": 8193}),
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_the_gate_and_envoy_say_the_same(name: str) -> None:
    """What one refuses, the other does."""
    right, change = CASES[name]
    whole = Whole()
    change(whole)
    made = whole.message()
    with tempfile.TemporaryDirectory(prefix="gate-") as folder:
        path = pathlib.Path(folder) / "envoy.pb"
        path.write_bytes(wire.encode(made))
        try:
            await process.validate(path, envoy=process.find_envoy())
            taken = True
        except process.BootstrapInvalidError:
            taken = False
    assert (not constraints.broken(made), taken) == (right, right)
