# SPDX-License-Identifier: Apache-2.0
"""Matches of RouteRules for connections: which port they are for, and through which parents.

One rule is for the mesh and for a gateway, and a real Envoy of each is asked.
"""

import pytest

from pilothouse.model import services
from tests.support import gateway_worlds, meshes, stream_worlds, tcp_backends

pytestmark = pytest.mark.envoy

PORTS = (6379, 6380)
AT_GATEWAY = (19_000, 19_001)


def rule(family: str, port: int, to_port: int) -> gateway_worlds.Objects:
    """What is for the gateway goes to `three`, for one port to `two`, and all else to `one`."""
    to = {name: f"destinations: [{{service: {name}, port: {to_port}}}]" for name in NAMES}
    return meshes.rule(
        "duo",
        f"{{parents: [{{service: duo}}, {{gateway: edge}}], {family}: ["
        f"{{matches: [{{gateways: [edge], port: {port}}}], {to['three']}}},"
        f" {{matches: [{{gateways: [mesh], port: {port}}}], {to['two']}}},"
        f" {{{to['one']}}}]}}",
    )


NAMES = ("one", "two", "three")


@pytest.mark.parametrize("family", ["tcp", "tls"])
async def test_ports_and_parents_of_connections_in_the_mesh(family: str) -> None:
    """A match for gateways takes nothing at a sidecar."""
    ports = (
        meshes.port(number, f"any-{number}", services.AppProtocol(family.upper()))
        for number in PORTS
    )
    async with stream_worlds.world() as world:
        await world.give(meshes.service("duo", *ports), rule(family, PORTS[1], stream_worlds.PORT))
        assert await world.reached(f"duo:{PORTS[0]}") == "one"
        assert await world.reached(f"duo:{PORTS[1]}") == "two"


async def test_ports_and_parents_of_connections_at_a_gateway() -> None:
    """A match for clients in the mesh takes nothing there."""
    async with gateway_worlds.world(lines=(*NAMES, "duo")) as world:
        await world.apply(
            gateway_worlds.gateway(
                *(f"name: tcp-{port}, port: {port}, protocol: TCP" for port in AT_GATEWAY)
            ),
            rule("tcp", AT_GATEWAY[1], 9000),
        )
        for port, name in zip(AT_GATEWAY, ("one", "three"), strict=True):
            async with tcp_backends.stream(world.address, port) as stream:
                assert stream.name == name
