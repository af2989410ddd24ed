# SPDX-License-Identifier: Apache-2.0
"""Mapped ports of a sidecar: TCP, TLS, UDP and HTTP ports of services at addresses of its own."""

import contextlib
import ssl

import aiohttp
import pytest

from pilothouse.model import services
from tests.support import (
    backends,
    certificates,
    fleet,
    meshes,
    stream_worlds,
    tcp_backends,
    waiting,
)

pytestmark = pytest.mark.envoy

PORT = stream_worlds.PORT
AT = 16379
DB = f"{AT}=db.default:{PORT}"


def rule(routes: str, parent: str = "db", family: str = "tcp") -> object:
    """A rule of a service for its connections."""
    return meshes.rule(parent, f"{{parents: [{{service: {parent}}}], {family}: [{routes}]}}")


def to(version: str) -> str:
    """Destinations: one of the versions of `db`."""
    return f"destinations: [{{service: db, labels: {{version: {version}}}}}]"


@pytest.mark.parametrize("variant", fleet.VARIANTS)
async def test_rules_and_weights_come_and_go_and_the_listener_stays(variant: str):
    """What is open goes on; what is new goes where the news say."""
    async with stream_worlds.world(variant, maps=(DB,)) as world:
        await world.give()
        assert await world.at(AT) in stream_worlds.BACKENDS
        async with tcp_backends.stream(world.envoy.address, AT) as first:
            for name in ("one", "two", "three", "two"):
                await world.give(rule(f"{{{to(name)}}}"))
                assert await world.at(AT) == name
                assert await first.echo(name) == name
            await world.give(rule("{destinations: [{service: gone}]}"))
            assert await world.at(AT) == "ConnectionResetError"
            await world.give()
            assert await world.at(AT) in stream_worlds.BACKENDS
            assert await first.echo("still") == "still"
        for what in ("modified", "in_place_updated", "removed"):
            assert await world.envoy.stat(f"listener_manager.listener_{what}") == 0


async def test_networks_of_clients():
    """The smaller one first; connections of others go on to what takes all."""
    routes = (
        f"{{matches: [{{sourceCidrs: [127.0.0.0/8]}}], {to('one')}}},"
        f" {{matches: [{{sourceCidrs: [127.9.9.9]}}], {to('two')}}},"
        f" {{matches: [{{destinationCidrs: [10.0.0.0/8]}}], {to('three')}}}"
    )
    async with stream_worlds.world(maps=(DB,)) as world:
        await world.give(rule(routes))
        assert await world.at(AT) == "one"
        assert await world.at(AT, source="127.9.9.9") == "two"
        await world.give(rule(f"{{matches: [{{destinationCidrs: [127.0.0.0/8]}}], {to('three')}}}"))
        assert await world.at(AT) == "three"


async def test_server_names():
    """Of the handshake, which is passed on as it is."""
    async with contextlib.AsyncExitStack() as stack:
        pair = certificates.make("a.vault.example", "b.example")
        served = {
            name: await stack.enter_async_context(tcp_backends.tcp_backend(name, pair.server()))
            for name in ("exact", "wide", "rest")
        }
        world = await stack.enter_async_context(
            stream_worlds.world(maps=(f"{AT}=vault.default:{PORT}",))
        )
        routes = (
            "{destinations: [{service: rest}]},"
            " {matches: [{serverNames: ['*.example']}], destinations: [{service: wide}]},"
            " {matches: [{serverNames: [A.vault.example]}], destinations: [{service: exact}]}"
        )
        await world.give(
            stream_worlds.tcp("vault", protocol="TLS"),
            *(stream_worlds.tcp(name, protocol="TLS") for name in served),
            rule(routes, "vault", "tls"),
            endpoints={
                name: [stream_worlds.endpoint(backend.port)] for name, backend in served.items()
            },
        )
        trust = ssl.create_default_context(cadata=pair.certificate)
        trust.check_hostname = False
        for name, backend in (
            ("a.vault.example", "exact"),
            ("b.example", "wide"),
            ("c.other", "rest"),
        ):
            assert await world.at(AT, tls=trust, server_name=name) == backend


async def test_datagrams():
    """A session has one endpoint; a service of UDP and TCP has two ports of one number."""
    dns = meshes.service(
        "dns",
        meshes.port(53, "udp", services.AppProtocol.UDP),
        meshes.port(53, "tcp", services.AppProtocol.TCP),
    )
    maps = ("10053=dns.default:53/udp", "10053=dns.default:53")
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(tcp_backends.udp_backend("first"))
        other = await stack.enter_async_context(tcp_backends.udp_backend("other"))
        world = await stack.enter_async_context(stream_worlds.world(maps=maps))
        moved = meshes.service("moved", meshes.port(53, "udp", services.AppProtocol.UDP))
        there = {
            "dns": [
                meshes.endpoint("127.0.0.1", first.port, "udp"),
                meshes.endpoint("127.0.0.1", world.backends["one"].port, "tcp"),
            ],
            "moved": [meshes.endpoint("127.0.0.1", other.port, "udp")],
        }
        await world.give(dns, moved, endpoints=there)
        assert await world.at(10053) == "one"

        async def asked() -> str | None:
            async with tcp_backends.datagrams(world.envoy.address, 10053) as client:
                return await client.ask("who")

        assert await waiting.eventually(asked, what="an answer") == "first:who"
        changed = rule("{destinations: [{service: moved}]}", "dns", "udp")
        await world.give(dns, moved, changed, endpoints=there)

        async def changed_over() -> bool:
            return await asked() == "other:who"

        await waiting.eventually(changed_over, what="new sessions go to the other service")


async def test_http():
    """A mapped port of HTTP has the routes of the service, whatever host is asked for."""
    spec = (
        "{parents: [{service: web}], http: ["
        "{matches: [{path: {exact: /no}}], directResponse: {status: 418}}]}"
    )
    async with contextlib.AsyncExitStack() as stack:
        web = await stack.enter_async_context(backends.backend("web"))
        world = await stack.enter_async_context(stream_worlds.world(maps=("18080=web.default:80",)))
        await world.give(
            meshes.service("web", 80),
            meshes.rule("web", spec),
            endpoints={"web": [meshes.endpoint("127.0.0.1", web.port, "http-80")]},
        )
        client = await stack.enter_async_context(aiohttp.ClientSession())
        base = f"http://{world.envoy.address}:18080"
        async with client.get(f"{base}/yes", headers={"host": "any.example"}) as answer:
            assert (answer.status, (await answer.json())["backend"]) == (200, "web")
        async with client.get(f"{base}/no") as answer:
            assert answer.status == 418


async def test_services_that_are_not_there_and_ports_that_are_taken():
    """They have no listener, and hinder no other; a service that comes has one."""
    maps = (DB, "1=gone.default:1", "15001=db.default:6379", "2=db.default:7")
    async with stream_worlds.world(maps=maps) as world:
        planned = await world.give()
        assert await world.at(AT) in stream_worlds.BACKENDS
        listeners = {one.name for layer in planned.layers for one in layer.listeners}
        assert listeners == {"http-proxy", f"map|{world.envoy.address}:{AT}"}
        planned = await world.give(stream_worlds.tcp("gone", 1))
        names = {one.name for layer in planned.layers for one in layer.listeners}
        assert f"map|{world.envoy.address}:1" in names
