# SPDX-License-Identifier: Apache-2.0
"""A change costs what it reaches: calls are counted, for time says nothing on a busy machine."""

import dataclasses
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

from pilothouse.config import objects
from pilothouse.model import keys
from pilothouse.routing import planner, state
from tests.support import meshes

FEW, MANY = 20, 120
SLACK = 40
"""Calls more or less that do not come from the size of the mesh."""


def calls(work: Callable[[], object]) -> Counter[str]:
    """How often each function of routing is called meanwhile."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        passes = name.startswith("<")  # a comprehension: one pass over what is there, and no more
        if event == "call" and "pilothouse/routing" in file and not passes:
            found[f"{file.rpartition('/')[2]}:{name}"] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


def asked(mesh: planner.Mesh, *proxies: Any) -> None:
    """All that discovery wants to know of a state."""
    _ = mesh.conditions
    for proxy in proxies:
        meshes.planned(mesh, proxy)


def cost(before: state.MeshState, after: state.MeshState, *proxies: Any) -> Counter[str]:
    """The calls that it takes to follow a change."""
    one = planner.Planner()
    asked(one.update(before), *proxies)
    asked(one.update(before), *proxies)
    return calls(lambda: asked(one.update(after), *proxies))


def grown(few: Counter[str], many: Counter[str]) -> dict[str, int]:
    """Calls that there are more of in the larger mesh, where that is too many."""
    more = {name: many[name] - few[name] for name in many if many[name] > few[name]}
    return more if sum(more.values()) > SLACK else {}


def test_a_rule_of_a_gateway_costs_the_same_among_few_and_among_many():
    """Its own host is made anew, and no other is looked at."""
    assert grown(*(_rule_change(number) for number in (FEW, MANY))) == {}


def _rule_change(number: int) -> Counter[str]:
    configs: dict[keys.ObjectKey, objects.Config] = {
        **meshes.gateway(
            "edge", "{selector: {app: edge}, listeners: [{name: a, port: 80, protocol: HTTP}]}"
        )
    }
    for one in range(number):
        configs |= _gateway_rule(one, timeout=1)
    before = meshes.mesh_state(meshes.service("a"), configs)
    after = {**before.configs, **_gateway_rule(7, timeout=2)}
    return cost(before, dataclasses.replace(before, configs=after), meshes.edge())


def _gateway_rule(number: int, *, timeout: int) -> dict[keys.ObjectKey, objects.Config]:
    return meshes.rule(
        f"r{number:04}",
        f"{{parents: [{{gateway: edge}}], hosts: [h{number}.example.com],"
        f" http: [{{timeout: {timeout}s, destinations: [{{service: a}}]}}]}}",
    )


def test_an_endpoint_costs_the_same_in_a_small_mesh_and_in_a_large_one():
    """Only the endpoints of its own service are looked at, and only its addresses."""
    assert grown(*(_endpoint_change(number) for number in (FEW, MANY))) == {}


def _endpoint_change(number: int) -> Counter[str]:
    before = _mesh(number)
    moved = {meshes.service_key("s0"): (meshes.endpoint("10.0.0.250", name="http-9080"),)}
    after = dataclasses.replace(before, endpoints={**before.endpoints, **moved})
    return cost(before, after, meshes.sidecar("s0-1", "10.0.0.250"), meshes.sidecar("x.elsewhere"))


def _mesh(number: int) -> state.MeshState:
    """So many services with an endpoint and a rule each."""
    names = [f"s{one}" for one in range(number)]
    return meshes.mesh_state(
        *(meshes.service(name, 9080) for name in names),
        *(meshes.rule(name, _service_rule(name, 1)) for name in names),
        endpoints={
            name: [meshes.endpoint(f"10.0.0.{one}", name="http-9080")]
            for one, name in enumerate(names)
        },
    )


def _service_rule(name: str, timeout: int) -> str:
    return f"{{parents: [{{service: {name}}}], http: [{{timeout: {timeout}s}}]}}"


def test_a_rule_of_a_service_costs_the_same_in_a_small_mesh_and_in_a_large_one():
    """For sidecars its virtual host is made anew, and no other is looked at."""
    assert grown(*(_service_rule_change(number) for number in (FEW, MANY))) == {}


def _service_rule_change(number: int) -> Counter[str]:
    before = _mesh(number)
    after = {**before.configs, **meshes.rule("s3", _service_rule("s3", 2))}
    proxy = meshes.sidecar("x.elsewhere")
    return cost(before, dataclasses.replace(before, configs=after), proxy)
