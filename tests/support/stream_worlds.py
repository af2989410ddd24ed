# SPDX-License-Identifier: Apache-2.0
"""Routes for connections at work: from their YAML through plan, translation and xDS to an Envoy.

A sidecar is told what follows from the rules that are given, again and again. There are TCP
services `one`, `two` and `three`, each of which is one backend of that name, and `db`, whose
versions they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from pilothouse.envoy import translate
from pilothouse.model import keys, mapped, proxy, services
from pilothouse.routing import plan, planner
from tests.support import fleet, meshes, tcp_backends, waiting, xds_server

PORT, UDP_PORT = 6379, 5353
BACKENDS = ("one", "two", "three")
LOOPBACK = tcp_backends.LOOPBACK


def tcp(name: str, number: int = PORT, protocol: str = "TCP") -> services.Service:
    """A service with one port that is no HTTP."""
    port = meshes.port(number, "any", services.AppProtocol(protocol))
    return meshes.service(name, port)


def endpoint(port: int, version: str = "", **parts: Any) -> services.Endpoint:
    """A backend as an endpoint of such a service."""
    labels = keys.labels(version=version) if version else ()
    return services.Endpoint(address=LOOPBACK, port=port, port_name="any", labels=labels, **parts)


@dataclasses.dataclass(slots=True)
class World:
    """An Envoy that a test steers, and backends."""

    host: xds_server.Host
    envoy: fleet.Proxy
    backends: Mapping[str, tcp_backends.TcpBackend]
    of: proxy.Proxy
    _planner: planner.Planner = dataclasses.field(default_factory=planner.Planner)
    _translator: translate.Translator = dataclasses.field(default_factory=translate.Translator)

    def endpoints(self) -> dict[str, Iterable[services.Endpoint]]:
        """Those of the services that are always there."""
        ports = {name: backend.port for name, backend in self.backends.items()}
        return {
            **{name: (endpoint(port),) for name, port in ports.items()},
            "db": tuple(endpoint(port, version=name) for name, port in ports.items()),
        }

    async def give(
        self, *parts: Any, endpoints: Mapping[str, Iterable[services.Endpoint]] | None = None
    ) -> plan.ProxyPlan:
        """Tell the sidecar what follows from services and rules, until it has acknowledged."""
        mesh = self._planner.update(
            meshes.mesh_state(
                *(tcp(name) for name in (*BACKENDS, "db")),
                *parts,
                endpoints={**self.endpoints(), **(endpoints or {})},
            )
        )
        planned = meshes.planned(mesh, self.of)
        self.host.give(self._translator.snapshot(planned, {}))
        await waiting.eventually(lambda: self.host.in_sync, what="all is acknowledged")
        assert self.host.refused == []
        return planned

    def connect(
        self, authority: str
    ) -> contextlib.AbstractAsyncContextManager[tcp_backends.Stream]:
        """A connection through the sidecar's HTTP proxy."""
        return tunnel(self.envoy.address, self.envoy.port, authority)

    async def at(self, port: int, *, source: str | None = None, **more: Any) -> str:
        """Which backend greets at a port of the sidecar; else the error's name."""
        try:
            async with tcp_backends.stream(
                self.envoy.address, port, source=source, **more
            ) as stream:
                return stream.name
        except OSError as error:
            return type(error).__name__

    async def reached(self, authority: str) -> str:
        """Which backend a CONNECT reaches; else the status."""
        try:
            async with self.connect(authority) as stream:
                return stream.name
        except RefusedError as refused:
            return refused.status


class RefusedError(Exception):
    """A proxy does not connect."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


@contextlib.asynccontextmanager
async def tunnel(address: str, port: int, authority: str) -> AsyncIterator[tcp_backends.Stream]:
    """A connection by CONNECT to a backend that greets.

    Raises:
        RefusedError: the proxy answers with another status than 200.
        ConnectionResetError: the other end closes before it greets.
    """
    head = f"CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n\r\n".encode()
    async with tcp_backends.stream(address, port, before=head) as stream:
        _, status, *_ = stream.name.split(" ")
        if status != "200":
            raise RefusedError(status)
        while await stream.reader.readline() not in (b"\r\n", b""):
            pass
        greeting = await stream.reader.readline()
        if not greeting:
            raise ConnectionResetError("closed before the greeting")
        yield tcp_backends.Stream(stream.reader, stream.writer, greeting.decode().rstrip("\n"))


@contextlib.asynccontextmanager
async def world(
    variant: str = "delta", *, maps: tuple[str, ...] = (), **of: Any
) -> AsyncIterator[World]:
    """A sidecar that has been told nothing yet, and the backends.

    Args:
        variant: Of xDS.
        maps: Its mapped ports, without the address: `PORT=NAME.NAMESPACE:PORT`.
        of: More of the proxy.
    """
    host = xds_server.Host()
    async with contextlib.AsyncExitStack() as stack:
        backends = {
            name: await stack.enter_async_context(tcp_backends.tcp_backend(name))
            for name in BACKENDS
        }
        made = await stack.enter_async_context(fleet.fleet())
        await stack.enter_async_context(xds_server.serving_xds(host, made.grpc))
        envoy = await stack.enter_async_context(
            made.envoy(f"client-{variant}", proxy.Role.SIDECAR, ready=False)
        )
        sidecar = meshes.sidecar(
            "client",
            envoy.address,
            bind_address=envoy.address,
            outbound_port=envoy.port,
            mapped=mapped.parse_all(tuple(f"{envoy.address}:{one}" for one in maps)),
            **of,
        )
        yield World(host, envoy, backends, sidecar)
