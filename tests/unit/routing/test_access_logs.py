# SPDX-License-Identifier: Apache-2.0
"""Where the mesh's access log gets, and that it is shared like what it is put into."""

from pilothouse.model import keys, mapped, proxy
from pilothouse.routing import plan, planner
from tests.support import meshes

MESH = keys.ObjectKey("MeshConfig", "pilothouse-system", "default")
LOG = plan.AccessLog(path="/dev/stdout", origins=(MESH,))
PARTS = (
    meshes.service("web", 80),
    meshes.service("db", meshes.port(5432, "sql", meshes.services.AppProtocol.TCP)),
    meshes.gateway(
        "edge",
        "{selector: {app: edge}, listeners: [{name: http, port: 80, protocol: HTTP},"
        " {name: sql, port: 5432, protocol: TCP}, {name: dns, port: 53, protocol: UDP}]}",
    ),
    meshes.rule("db", "{parents: [{gateway: edge}], tcp: [{destinations: [{service: db}]}]}"),
)
ENDPOINTS = {"db": [meshes.endpoint("10.0.0.1", 5432, "sql")]}
CLIENT = meshes.sidecar(
    "db-1", "10.0.0.1", mapped=mapped.parse_all(("127.0.0.1:1=db.default:5432",))
)


def logs(of: proxy.Proxy, spec: str = "{accessLog: {path: /dev/stdout}}") -> set[object]:
    """The logs of everything that serves something."""
    mesh = meshes.mesh(*PARTS, meshes.defaults(spec), endpoints=ENDPOINTS)
    found: set[object] = set()
    for layer in meshes.planned(mesh, of).layers:
        found |= {one.access_log for one in layer.tcp_forwards}
        for listener in layer.listeners:
            assert (MESH in listener.origins) is (LOG.path in spec)
            found |= {
                chain.serves.access_log
                for chain in listener.chains
                if not isinstance(chain.serves, plan.Tcp)
            }
    return found


def test_all_that_serves_something_has_the_log():
    """At sidecars and gateways: HTTP, TCP, UDP, and mapped ports."""
    for of in (CLIENT, meshes.edge()):
        assert logs(of) == {LOG}
        assert logs(of, "{}") == {None}


def test_replicas_share_what_is_logged():
    """The log makes no layer a proxy's own."""
    mesh = planner.Planner().update(
        meshes.mesh_state(*PARTS, meshes.defaults("{accessLog: {path: /a}}"), endpoints=ENDPOINTS)
    )
    one, other = (
        meshes.planned(
            mesh, meshes.sidecar(f"web-{n}", f"10.0.1.{n}", labels=keys.labels(app="web"))
        )
        for n in (1, 2)
    )
    assert all(a is b for a, b in zip(one.layers, other.layers, strict=True))
