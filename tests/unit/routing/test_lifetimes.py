# SPDX-License-Identifier: Apache-2.0
"""How long connections that are no HTTP may last, by the policies of where they go."""

import pytest

from pilothouse.model import keys, mapped, proxy
from pilothouse.routing import plan, planner
from tests.support import meshes, stream_worlds

PORT = stream_worlds.PORT
GATEWAY = meshes.gateway(
    "edge", "{selector: {app: edge}, listeners: [{name: any, port: 9000, protocol: TCP}]}"
)


def policy(name: str, service: str, longest: str, more: str = "") -> object:
    return meshes.policy(
        name, f"{{service: {service}, {more} connectionPool: {{maxDuration: {longest}}}}}"
    )


def rule(*destinations: str) -> object:
    return meshes.rule(
        "edge",
        f"{{parents: [{{gateway: edge}}], tcp: [{{destinations: [{', '.join(destinations)}]}}]}}",
    )


def mesh(*parts: object) -> planner.Mesh:
    return meshes.mesh(*(stream_worlds.tcp(name) for name in ("db", "log")), GATEWAY, *parts)


def forwards(whole: planner.Mesh, of: proxy.Proxy) -> list[plan.TcpForward]:
    return [one for layer in meshes.planned(whole, of).layers for one in layer.tcp_forwards]


DB, LOG = "{service: db}", "{service: log, weight: 0}"


@pytest.mark.parametrize(
    ("policies", "destinations", "expected"),
    [
        ((), (DB,), None),
        ((policy("p", "db", "2s"),), (DB,), 2000),
        ((policy("p", "db", "2s"), policy("q", "log", "1s")), (DB, "{service: log}"), 1000),
        ((policy("p", "db", "2s"), policy("q", "log", "1s")), (DB, LOG), 2000),
        ((policy("p", "log", "1s"),), (DB,), None),
        (
            (policy("p", "db", "2s", "labels: {v: a},"), policy("q", "db", "3s")),
            ("{service: db, labels: {v: a}}",),
            2000,
        ),
        ((meshes.policy("p", "{service: db, connectionPool: {}}"),), (DB,), None),
    ],
)
def test_at_a_gateway(
    policies: tuple[object, ...], destinations: tuple[str, ...], expected: int | None
):
    """The shortest time of the services that get connections."""
    found = forwards(mesh(rule(*destinations), *policies), meshes.edge())
    (forward,) = [one for one in found if "RouteRule" in one.name]
    assert forward.max_duration_ms == expected
    said = {origin.name for origin in forward.origins if origin.kind == "DestinationPolicy"}
    assert bool(said) is (expected is not None)


def test_at_a_mapped_port():
    """Also what the client's own namespace says, for its own clients."""
    own = policy("p.shop", "db", "1s", "namespace: default,")
    whole = mesh(policy("p", "db", "2s"), own)
    ports = mapped.parse_all((f"127.0.0.1:7001=db.default:{PORT}",))
    found = {
        namespace: forwards(whole, meshes.sidecar(f"c.{namespace}", mapped=ports))
        for namespace in ("default", "shop")
    }
    assert {name: [one.max_duration_ms for one in some] for name, some in found.items()} == {
        "default": [2000],
        "shop": [1000],
    }


def test_clients_share_what_is_limited():
    """Two proxies that serve the same gateways hold the same objects."""
    whole = mesh(rule(DB), policy("p", "db", "2s"))
    one, other = (
        meshes.planned(whole, meshes.edge(name, labels=keys.labels(app="edge")))
        for name in ("one", "two")
    )
    assert [layer.tcp_forwards for layer in one.layers] == [
        layer.tcp_forwards for layer in other.layers
    ]
    for mine, theirs in zip(one.layers, other.layers, strict=True):
        assert mine is theirs
