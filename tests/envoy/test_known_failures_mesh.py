# SPDX-License-Identifier: Apache-2.0
"""Failures that users of meshes know, and do not find here: between two sidecars.

A discovery steers a sidecar beside each of two applications, which listen on 127.0.0.1 as in a pod;
the sidecars listen on the pods' addresses.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from pilothouse.model import keys, proxy
from tests.support import backends, fleet

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

APPLICATIONS = ("a", "b")


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two applications with their sidecars."""

    sidecars: dict[str, fleet.Proxy]
    applications: dict[str, backends.Backend]
    session: aiohttp.ClientSession
    mesh: fleet.Fleet
    files: dict[str, str]
    """What is said of each application."""

    def url(self, client: str, path: str = "/") -> str:
        """Where an application sends its requests."""
        via = self.sidecars[client]
        return f"http://{via.address}:{via.port}{path}"

    async def reached(self, client: str, host: str) -> str:
        """Who answers an application that asks for a host; else the status."""
        async with self.session.get(self.url(client), headers={"host": host}) as answer:
            return (await answer.json())["backend"] if answer.status == 200 else str(answer.status)


def pod(name: str, address: str, port: int) -> str:
    """A Pod whose sidecar listens where the application does, at another address."""
    return fleet.pod(name, "v1", port).replace("podIP: 127.0.0.1", f"podIP: {address}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair() -> AsyncIterator[Pair]:
    async with contextlib.AsyncExitStack() as stack:
        applications = {
            name: await stack.enter_async_context(backends.backend(name)) for name in APPLICATIONS
        }
        mesh = await stack.enter_async_context(fleet.fleet())
        where = {
            name: f"127.{mesh.block.number}.2.{number}"
            for number, name in enumerate(APPLICATIONS, start=100)
        }
        files = {
            name: fleet.join(
                fleet.service(name),
                pod(name, where[name], applications[name].port),
                fleet.policy(name, "connectionPool: {httpVersion: HTTP2}"),
                fleet.rule(name, {"v1": 1}, more=["timeout: 30s"]),
            )
            for name in APPLICATIONS
        }
        await mesh.apply({f"{name}.yaml": text for name, text in files.items()}, wait=False)
        await mesh.start()
        sidecars = {
            name: await stack.enter_async_context(
                mesh.envoy(
                    f"{name}-v1-0",
                    proxy.Role.SIDECAR,
                    labels=keys.labels(app=name, version="v1"),
                    address=where[name],
                )
            )
            for name in APPLICATIONS
        }
        await mesh.settled()
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield Pair(sidecars, applications, session, mesh, files)


async def connections(of: fleet.Proxy, service: str, protocol: str) -> int:
    """How many connections of a protocol a sidecar has made to a service, in all its time."""
    cluster = f"outbound|80|version=v1|{service}/default"
    return await of.stat(f"cluster.{cluster}.upstream_cx_{protocol}_total")


@pytest.mark.parametrize("client", APPLICATIONS)
@pytest.mark.parametrize("host", ["{}", "{}.default:80", "{}.default.svc.cluster.local"])
async def test_an_application_may_call_itself(pair: Pair, client: str, host: str) -> None:
    """Through its sidecar out, and in again; by every form of its name."""
    assert await pair.reached(client, host.format(client)) == client


async def test_an_application_is_reached_by_the_address_of_its_pod(pair: Pair) -> None:
    """Whatever host is asked for, as health checks of other systems do."""
    for name in APPLICATIONS:
        address, port = pair.sidecars[name].address, pair.applications[name].port
        async with pair.session.get(f"http://{address}:{port}/") as answer:
            assert (await answer.json())["backend"] == name


@pytest.mark.parametrize("server", APPLICATIONS)
async def test_websockets_pass_between_sidecars_that_speak_http2(pair: Pair, server: str) -> None:
    """As an extended CONNECT (RFC 8441) between them, to another application and to itself."""
    headers = {"host": server}
    async with pair.session.ws_connect(pair.url("a", "/echo"), headers=headers) as socket:
        for word in ("ahoy", "there"):
            await socket.send_str(word)
            assert await socket.receive_str(timeout=30) == word
    assert await connections(pair.sidecars["a"], server, "http2") > 0
    assert await connections(pair.sidecars["a"], server, "http1") == 0


def edited(text: str, old: str, new: str) -> str:
    """A text with something else in one place."""
    assert text.count(old) == 1
    return text.replace(old, new)


async def test_a_connection_lives_on_while_everything_about_it_changes(pair: Pair) -> None:
    """Its rule, a service beside it, and how it is talked to: what is open stays as it began."""
    before = pair.files["b"]
    steps: list[tuple[str, str | None]] = [
        ("b.yaml", edited(before, "timeout: 30s", "timeout: 20s")),
        ("c.yaml", fleet.join(fleet.service("c"), fleet.rule("c", {"v9": 1}))),
        ("b.yaml", edited(before, "weight: 1", "weight: 7")),
        ("c.yaml", None),
        ("b.yaml", edited(before, "HTTP2}", "HTTP2, idleTimeout: 40s}")),
        ("b.yaml", before),
    ]
    async with pair.session.ws_connect(pair.url("a", "/echo"), headers={"host": "b"}) as socket:
        for number, (name, text) in enumerate(steps):
            await pair.mesh.apply({name: text})
            await socket.send_str(f"step {number}")
            assert await socket.receive_str(timeout=30) == f"step {number}"
            assert await pair.reached("a", "b") == "b"


@pytest.mark.parametrize(
    "heads",
    [
        pytest.param(
            [{f"x-{n}": "x" * size for n in range(10)} for size in range(5900, 6300, 10)],
            id="bytes",
        ),
        pytest.param(
            [{f"x-{n}": "" for n in range(count)} for count in range(85, 105)], id="count"
        ),
    ],
)
async def test_headers_that_one_sidecar_takes_the_next_one_takes(
    pair: Pair, heads: list[dict[str, str]]
) -> None:
    """Each adds some of its own. What is too much is so for the first: 431, and never 503."""
    found = []
    for head in heads:
        async with pair.session.get(pair.url("a"), headers={"host": "b", **head}) as answer:
            found.append(answer.status)
    assert found == sorted(found)
    assert set(found) == {200, 431}


@pytest.mark.parametrize("server", APPLICATIONS)
async def test_a_request_that_was_processed_is_not_sent_again(pair: Pair, server: str) -> None:
    """The application has read it and cuts the connection: neither sidecar may know better."""
    url, path = pair.url("a", f"/{server}/drop"), f"POST /{server}/drop"
    async with pair.session.post(url, headers={"host": server}, data=b"order") as answer:
        assert answer.status == 503
    assert pair.applications[server].requests.count(path) == 1
