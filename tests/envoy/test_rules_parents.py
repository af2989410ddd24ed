# SPDX-License-Identifier: Apache-2.0
"""Whose requests RouteRules route, several for one service, and where they go; by a real Envoy."""

import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import backends, envoy_plans, gateway_worlds, meshes, policy_worlds

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

PORTS = (80, 81)
NAMES = ("near", "far", "other")


def rule(name: str, parent: str, routes: str, more: str = "") -> gateway_worlds.Objects:
    """A RouteRule of one parent."""
    return meshes.rule(name, f"{{parents: [{{{parent}}}]{more}, http: [{routes}]}}")


def to(name: str, path: str = "") -> str:
    """A route to a service, of all requests or of one path."""
    matches = f"matches: [{{path: {{exact: {path}}}}}], " if path else ""
    return f"{{{matches}destinations: [{{service: {name}}}]}}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[policy_worlds.World]:
    """Services with two ports, of which one is `near` and the other `far`; and one of each."""
    async with contextlib.AsyncExitStack() as stack:
        port = {
            name: (await stack.enter_async_context(backends.backend(name))).port for name in NAMES
        }
        both = [
            meshes.endpoint(envoy_plans.LOOPBACK, port[name], f"http-{number}")
            for number, name in zip(PORTS, ("near", "far"), strict=True)
        ]
        two = ("one-port", "by-default", "by-number", "double")
        outside = (
            "{hosts: [api.example], resolution: STATIC, endpoints: [{address: 127.0.0.1}],"
            f" ports: [{{number: 80, targetPort: {port['far']}}}]}}"
        )
        yield await stack.enter_async_context(
            policy_worlds.running(
                {
                    **dict.fromkeys(two, both),
                    **dict.fromkeys(("near", "shared", "ranked", "out", "lost"), (port["near"],)),
                    "other": [port["other"]],
                },
                {},
                *(meshes.service(name, *PORTS) for name in two),
                meshes.external("api", outside),
                rule("one-port", "service: one-port, port: 81", to("other")),
                rule("by-default", "service: by-default", to("double")),
                rule(
                    "by-number",
                    "service: by-number",
                    "{destinations: [{service: double, port: 81}]}",
                ),
                rule("carts", "service: shared", to("other", "/cart")),
                rule("all", "service: shared", f"{to('double')}, {to('near', '/near')}"),
                rule("exact", "service: ranked", to("near", "/near")),
                rule("first", "service: ranked", to("other"), more=", priority: 1"),
                rule("out", "service: out", "{destinations: [{externalService: api}]}"),
                rule("api", "externalService: api", to("other", "/moved")),
                rule("lost", "service: lost", "{name: the-lost, destinations: [{service: gone}]}"),
            )
        )


async def test_a_rule_may_be_for_one_port_of_its_parent(world: policy_worlds.World) -> None:
    """The other ports are as if there were none."""
    assert await world.reached("one-port:80") == "near"
    assert await world.reached("one-port:81") == "other"


async def test_a_destination_may_name_a_port(world: policy_worlds.World) -> None:
    """Else it is the one that was asked for."""
    for number, backend in zip(PORTS, ("near", "far"), strict=True):
        assert await world.reached(f"by-default:{number}") == backend
        assert await world.reached(f"by-number:{number}") == "far"


async def test_rules_of_one_service_are_merged(world: policy_worlds.World) -> None:
    """By what they match, whoever wrote them: each takes what is its own."""
    assert await world.reached("shared", "/cart") == "other"
    assert await world.reached("shared", "/near") == "near"
    assert await world.reached("shared", "/") == "near"  # port 80 of `double`


async def test_a_rule_of_higher_priority_goes_first(world: policy_worlds.World) -> None:
    """However exact the other one is."""
    assert await world.reached("ranked", "/near") == "other"


async def test_external_services_are_parents_and_destinations(world: policy_worlds.World) -> None:
    """A rule changes what is asked of a host outside, and may send requests there."""
    assert await world.reached("api.example", "/") == "far"
    assert await world.reached("api.example", "/moved") == "other"
    assert await world.reached("out", "/") == "far"


async def test_a_route_is_told_by_its_name(world: policy_worlds.World) -> None:
    """In what an application reads when its request has nowhere to go."""
    async with world.ask("lost") as answer:
        assert answer.status == 500
        told = await answer.text()
    assert "RouteRule/default/lost" in told
    assert "the-lost" in told
