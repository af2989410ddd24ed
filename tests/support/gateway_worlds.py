# SPDX-License-Identifier: Apache-2.0
"""A gateway proxy, applications behind it, and what objects say of them.

It is planned, translated, and given to a real Envoy over xDS.
"""

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Mapping
from typing import Any

from pilothouse.config import objects, validation
from pilothouse.model import keys, secrets, services
from pilothouse.routing import planner
from tests.support import backends, meshes, tcp_backends, wired

HTTP, GRPC = services.AppProtocol.HTTP, services.AppProtocol.GRPC
TCP, UDP = services.AppProtocol.TCP, services.AppProtocol.UDP
Objects = Mapping[keys.ObjectKey, objects.Config]
PORT = 18443


@dataclasses.dataclass(slots=True)
class World:
    """An Envoy, and applications: services of their names in the namespace default."""

    wired: wired.Wired
    web: dict[str, backends.Backend]
    """On port 80 of their services."""
    lines: dict[str, tcp_backends.TcpBackend]
    """On port 9000."""
    packets: dict[str, tcp_backends.UdpBackend]
    """On port 53."""
    calls: dict[str, int] = dataclasses.field(default_factory=dict)
    """Ports of gRPC applications; on port 50051."""
    mesh: planner.Mesh | None = None

    @property
    def address(self) -> str:
        """Where the gateway listens."""
        return self.wired.envoy.address

    async def apply(self, *given: Objects, wait: bool = True) -> None:
        """Have these objects in force, all of which must be right; nothing may be refused."""
        for some in given:
            for config in some.values():
                assert validation.validate(config) == (), config.key
        self.mesh = meshes.mesh(*self._services(), *given, endpoints=self._endpoints())
        edge = meshes.edge(address=self.address, bind_address=self.address)
        await self.wired.give(*meshes.planned(self.mesh, edge).layers, wait=wait)

    def condition(self, kind: str, name: str, type_: str) -> objects.Condition | None:
        """A condition of an object."""
        assert self.mesh is not None
        return meshes.condition(self.mesh, kind, name, type_)

    def _services(self) -> list[services.Service]:
        return [
            *(meshes.service(name, meshes.port(80, "http", HTTP)) for name in self.web),
            *(meshes.service(name, meshes.port(9000, "tcp", TCP)) for name in self.lines),
            *(meshes.service(name, meshes.port(53, "udp", UDP)) for name in self.packets),
            *(meshes.service(name, meshes.port(50_051, "grpc", GRPC)) for name in self.calls),
        ]

    def _endpoints(self) -> dict[str, list[Any]]:
        found = {
            name: [meshes.endpoint("127.0.0.1", port, "grpc")] for name, port in self.calls.items()
        }
        for kind, some in (("http", self.web), ("tcp", self.lines), ("udp", self.packets)):
            for name, one in some.items():
                found[name] = [meshes.endpoint("127.0.0.1", one.port, kind)]
        return found

    def hold(self, name: str, **parts: Any) -> None:
        """Have a secret in the namespace default, PEM; nothing of it is none."""
        key = secrets.SecretKey("default", name)
        given = {part: value.encode() for part, value in parts.items()}
        self.wired.held[key] = secrets.TlsSecret(key=key, **given)


@contextlib.asynccontextmanager
async def world(
    *,
    web: tuple[str, ...] = (),
    lines: tuple[str, ...] = (),
    packets: tuple[str, ...] = (),
    variant: str = "delta",
) -> AsyncIterator[World]:
    """A world with applications of these names."""
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        yield World(
            await enter(wired.wired(variant)),
            {name: await enter(backends.backend(name)) for name in web},
            {name: await enter(tcp_backends.tcp_backend(name)) for name in lines},
            {name: await enter(tcp_backends.udp_backend(name)) for name in packets},
        )


def gateway(*listeners: str, name: str = "edge", created: int = 0) -> Objects:
    """A MeshGateway for the proxy, with listeners in YAML flow style."""
    shown = ", ".join(f"{{{each}}}" for each in listeners)
    spec = f"{{selector: {{app: edge}}, listeners: [{shown}]}}"
    return meshes.gateway(name, spec, created=created)


def https(
    name: str, *hosts: str, certificates: tuple[str, ...] = ("shop",), tls: str = "", more: str = ""
) -> str:
    """A listener for HTTPS at `PORT`."""
    shown = ", ".join(f"'{host}'" for host in hosts)
    named = ", ".join(f"{{secret: {each}}}" for each in certificates)
    return (
        f"name: {name}, port: {PORT}, protocol: HTTPS{more}, hosts: [{shown}],"
        f" tls: {{certificates: [{named}]{tls}}}"
    )


def route(
    name: str, routes: str, *, listener: str = "", hosts: str = "", to: str = "edge"
) -> Objects:
    """A RouteRule of a gateway with these lists of routes, in YAML flow style."""
    parent = f"gateway: {to}" + (f", listener: {listener}" if listener else "")
    shown = f", hosts: {hosts}" if hosts else ""
    return meshes.rule(name, f"{{parents: [{{{parent}}}]{shown}, {routes}}}")
