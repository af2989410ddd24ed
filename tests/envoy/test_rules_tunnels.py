# SPDX-License-Identifier: Apache-2.0
"""TCP and TLS ports of services, through the HTTP proxy of a sidecar, by CONNECT."""

from collections import Counter

import pytest

from tests.support import fleet, meshes, stream_worlds

pytestmark = pytest.mark.envoy

PORT = stream_worlds.PORT


def rule(routes: str, parent: str = "db", family: str = "tcp") -> object:
    """A rule of a service for its connections."""
    return meshes.rule(parent, f"{{parents: [{{service: {parent}}}], {family}: [{routes}]}}")


def to(version: str, weight: int = 1) -> str:
    """A destination: one of the versions of `db`."""
    return f"{{service: db, labels: {{version: {version}}}, weight: {weight}}}"


async def test_names_of_tcp_ports_and_nothing_else():
    """Whatever is no port of a service that speaks TCP gets 404, and no connection."""
    async with stream_worlds.world() as world:
        web = meshes.service("web", meshes.port(80))
        await world.give(web, endpoints={"web": [meshes.endpoint("127.0.0.1", 1)]})
        for name in ("one", "one.default", "one.default.svc", "one.default.svc.cluster.local"):
            assert await world.reached(f"{name}:{PORT}") == "one"
        for other in ("web:80", "one:80", f"gone:{PORT}", f"gone.default:{PORT}", "127.0.0.1:22"):
            assert await world.reached(other) == "404"


async def test_weights_and_versions():
    """As for requests; what leads nowhere keeps its share."""
    async with stream_worlds.world() as world:
        await world.give(rule(f"{{destinations: [{to('one', 3)}, {to('two', 1)}]}}"))
        found = Counter([await world.reached(f"db:{PORT}") for _ in range(200)])
        assert found.keys() == {"one", "two"}
        assert 110 < found["one"] < 185
        await world.give(rule(f"{{destinations: [{to('one', 1)}, {{service: gone}}]}}"))
        found = Counter([await world.reached(f"db:{PORT}") for _ in range(100)])
        assert found.keys() == {"one", "500"}
        await world.give(rule("{destinations: [{service: gone}]}"))
        assert await world.reached(f"db:{PORT}") == "500"


@pytest.mark.parametrize("variant", fleet.VARIANTS)
async def test_changes_of_weights_touch_no_connection_and_no_listener(variant: str):
    """One is open through all of them, also when its own version is no destination any more."""
    async with stream_worlds.world(variant) as world:
        await world.give(rule(f"{{destinations: [{to('one')}]}}"))
        async with world.connect(f"db:{PORT}") as first:
            assert first.name == "one"
            for weight in range(20):
                await world.give(rule(f"{{destinations: [{to('two', weight)}, {to('three')}]}}"))
                assert await first.echo(str(weight)) == str(weight)
                assert await world.reached(f"db:{PORT}") in {"two", "three"}
            await world.give()
            assert await first.echo("still") == "still"
        assert await world.envoy.stat("listener_manager.listener_modified") == 0
        assert await world.envoy.stat("listener_manager.listener_in_place_updated") == 0


async def test_server_names_are_the_hosts_that_are_asked_for():
    """The exact name first, then the longest wildcard, then any."""
    vault = stream_worlds.tcp("vault", protocol="TLS")
    routes = (
        "{destinations: [{service: three}]},"
        " {matches: [{serverNames: ['*.default']}], destinations: [{service: two}]},"
        " {matches: [{serverNames: [VAULT.default.svc]}], destinations: [{service: one}]}"
    )
    async with stream_worlds.world() as world:
        await world.give(vault, rule(routes, "vault", "tls"))
        assert await world.reached(f"vault.default.svc:{PORT}") == "one"
        assert await world.reached(f"vault.default:{PORT}") == "two"
        assert await world.reached(f"vault:{PORT}") == "three"


async def test_a_service_without_endpoints():
    """Nobody is there to connect to: 503, and no connection; it comes with an endpoint."""
    async with stream_worlds.world() as world:
        late = stream_worlds.tcp("late")
        await world.give(late)
        assert await world.reached(f"late:{PORT}") == "503"
        there = stream_worlds.endpoint(world.backends["two"].port)
        await world.give(late, endpoints={"late": [there]})
        assert await world.reached(f"late:{PORT}") == "two"


async def test_an_endpoint_that_refuses_is_passed_over():
    """No byte has been sent, so another one is tried."""
    async with stream_worlds.world() as world:
        port = world.backends["one"].port
        there = [stream_worlds.endpoint(port), stream_worlds.endpoint(1)]
        await world.give(endpoints={"one": there})
        found = [await world.reached(f"one:{PORT}") for _ in range(20)]
        assert found == ["one"] * 20


async def test_routes_for_some_clients():
    """A match may ask for the client, as for requests."""
    routes = (
        "{matches: [{source: {labels: {app: other}}}], destinations: [{service: one}]},"
        " {matches: [{source: {namespace: default}}], destinations: [{service: two}]},"
        " {destinations: [{service: three}]}"
    )
    async with stream_worlds.world() as world:
        await world.give(rule(routes))
        assert await world.reached(f"db:{PORT}") == "two"


async def test_external_services():
    """Their ports of TLS and TCP, by their hosts; what has to leave by the gateway does not."""
    async with stream_worlds.world() as world:
        ports = {name: backend.port for name, backend in world.backends.items()}
        parts = [
            meshes.external(
                name,
                f"{{hosts: [{name}.example.com], resolution: STATIC, ports: ["
                f"{{number: 443, protocol: TLS, targetPort: {ports['one']}}},"
                f" {{number: 5432, protocol: TCP, targetPort: {ports['two']}}}, {{number: 80}}],"
                f" endpoints: [{{address: 127.0.0.1}}], throughEgressGateway: {through}}}",
            )
            for name, through in (("api", "false"), ("closed", "true"))
        ]
        await world.give(*parts)
        assert await world.reached("API.example.com:443") == "one"
        assert await world.reached("api.example.com:5432") == "two"
        assert await world.reached("api.example.com:80") == "404"
        assert await world.reached("closed.example.com:443") == "404"
        moved = meshes.rule(
            "api", "{parents: [{externalService: api}], tls: [{destinations: [{service: three}]}]}"
        )
        await world.give(*parts, moved)
        assert await world.reached("api.example.com:443") == "three"
        assert await world.reached("api.example.com:5432") == "two"
