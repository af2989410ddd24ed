# SPDX-License-Identifier: Apache-2.0
"""Which proxies serve a MeshGateway, and which RouteRules attach to it; through a real Envoy."""

import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import gateway_worlds, http_clients, meshes, tcp_backends
from tests.support.gateway_worlds import gateway, route

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

PORT, OTHER_PORT, LINES = 18080, 18081, 19000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[gateway_worlds.World]:
    """One Envoy with two applications of HTTP, and one of TCP."""
    async with gateway_worlds.world(web=("shop", "api"), lines=("line",)) as made:
        yield made


def listener(port: int = PORT, name: str = "http", hosts: str = "['*']") -> str:
    return f"name: {name}, port: {port}, protocol: HTTP, hosts: {hosts}"


def to(name: str) -> str:
    return f"http: [{{destinations: [{{service: {name}, namespace: default}}]}}]"


async def reached(world: gateway_worlds.World, host: str, port: int = PORT) -> str:
    """Who answers; else the status, and nothing where nobody listens."""
    with contextlib.suppress(ConnectionError):
        answer = await http_clients.http1(world.address, port, host)
        return str(answer.seen["backend"]) if answer.status == 200 else str(answer.status)
    return ""


async def test_only_proxies_that_a_selector_picks_open_its_ports(
    world: gateway_worlds.World,
) -> None:
    """All labels must be there, and both are in one namespace."""
    for name, selector, opened in (
        ("edge", "{app: edge}", True),
        ("edge", "{app: edge, track: canary}", False),
        ("edge", "{app: other}", False),
        ("edge.team", "{app: edge}", False),
    ):
        spec = f"{{selector: {selector}, listeners: [{{{listener(OTHER_PORT)}}}]}}"
        await world.apply(gateway(listener(), name="first"), meshes.gateway(name, spec))
        assert await reached(world, "shop.example.com", OTHER_PORT) == ("404" if opened else "")
        assert await reached(world, "shop.example.com") == "404"


@pytest.mark.parametrize(
    ("allowed", "served"),
    [
        ("", {"default"}),
        (", allowedNamespaces: [team]", {"team"}),
        (", allowedNamespaces: ['*']", {"default", "team", "else"}),
    ],
)
async def test_rules_of_allowed_namespaces_attach(
    world: gateway_worlds.World, allowed: str, served: set[str]
) -> None:
    """By default those of the gateway's own; the hosts of others are nobody's."""
    namespaces = ("default", "team", "else")
    spec = f"{{selector: {{app: edge}}, listeners: [{{{listener()}}}]{allowed}}}"
    await world.apply(
        meshes.gateway("edge", spec),
        *(
            meshes.rule(
                f"shop.{one}",
                f"{{parents: [{{gateway: edge, namespace: default}}], hosts: [{one}.example.com],"
                f" {to('shop')}}}",
            )
            for one in namespaces
        ),
    )
    found = {one: await reached(world, f"{one}.example.com") for one in namespaces}
    assert found == {one: "shop" if one in served else "404" for one in namespaces}


async def test_a_listener_may_allow_other_namespaces_than_its_gateway(
    world: gateway_worlds.World,
) -> None:
    """What it says counts for it alone, whether rules name it or not."""
    namespaces = ("default", "team", "else")
    listeners = (listener() + ", allowedNamespaces: [team]", listener(OTHER_PORT, "other"))
    shown = ", ".join(f"{{{each}}}" for each in listeners)
    allowed = "allowedNamespaces: [default, else]"
    await world.apply(
        meshes.gateway("edge", f"{{selector: {{app: edge}}, listeners: [{shown}], {allowed}}}"),
        *(
            meshes.rule(
                f"{name}.{one}",
                f"{{parents: [{{gateway: edge, namespace: default{more}}}],"
                f" hosts: [{name}.{one}.example.com], {to('shop')}}}",
            )
            for one in namespaces
            for name, more in (("all", ""), ("named", ", listener: http"))
        ),
    )
    for one in namespaces:
        for name, ports in (("all", {PORT, OTHER_PORT}), ("named", {PORT})):
            admitted = {PORT} if one == "team" else {OTHER_PORT}
            host = f"{name}.{one}.example.com"
            for port in (PORT, OTHER_PORT):
                expected = "shop" if port in ports & admitted else "404"
                assert await reached(world, host, port) == expected, (host, port)
        condition = world.condition("RouteRule", f"named.{one}", "ResolvedRefs")
        assert condition is not None
        reason = "ResolvedRefs" if one == "team" else "NotAllowedByListeners"
        assert condition.reason == reason


async def test_connections_of_a_listener_with_its_own_namespaces(
    world: gateway_worlds.World,
) -> None:
    """Only rules of these have them; without one they are closed."""
    for namespace, name in (("team", "line"), ("default", "")):
        allowed = f", allowedNamespaces: [{namespace}]"
        await world.apply(
            gateway(f"name: lines, port: {LINES}, protocol: TCP{allowed}"),
            meshes.rule(
                "lines.team",
                "{parents: [{gateway: edge, namespace: default}],"
                " tcp: [{destinations: [{service: line, namespace: default, port: 9000}]}]}",
            ),
        )
        with contextlib.suppress(ConnectionError):
            async with tcp_backends.stream(world.address, LINES) as stream:
                assert stream.name == name
                continue
        assert not name


async def test_a_rule_may_be_for_one_listener(world: gateway_worlds.World) -> None:
    """Without a name it is for all of them."""
    await world.apply(
        gateway(listener(), listener(OTHER_PORT, "other")),
        route("one", to("shop"), listener="other", hosts="[a.example.com]"),
        route("all", to("api"), hosts="[b.example.com]"),
    )
    assert await reached(world, "a.example.com", OTHER_PORT) == "shop"
    assert await reached(world, "a.example.com") == "404"
    for port in (PORT, OTHER_PORT):
        assert await reached(world, "b.example.com", port) == "api"


async def test_hosts_of_a_rule_are_those_that_its_listener_has_too(
    world: gateway_worlds.World,
) -> None:
    """Unset, all of the listener's; what the listener does not have, nobody answers."""
    await world.apply(
        gateway(listener(hosts="['*.example.com', shop.org]")),
        route("wide", to("shop")),
        route("narrow", to("api"), hosts="[api.example.com, api.org]"),
    )
    assert await reached(world, "any.example.com") == "shop"
    assert await reached(world, "shop.org") == "shop"
    assert await reached(world, "api.example.com") == "api"
    assert await reached(world, "api.org") == "404"
