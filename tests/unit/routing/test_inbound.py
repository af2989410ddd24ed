# SPDX-License-Identifier: Apache-2.0
"""What a sidecar serves in its application's stead."""

from pilothouse.model import keys, services
from pilothouse.routing import plan
from tests.support import meshes

SERVICES = (
    meshes.service(
        "web",
        meshes.port(80, "http", target=8080),
        meshes.port(90, "sql", services.AppProtocol.TCP),
    ),
    meshes.service("dns", meshes.port(53, "udp", services.AppProtocol.UDP)),
    meshes.service("raw", meshes.port(1, "any", services.AppProtocol.TCP)),
    meshes.service("again", meshes.port(2, "http")),
)
ADDRESS = "10.0.0.1"
ENDPOINTS = {
    "web": (meshes.endpoint(ADDRESS, 8080), meshes.endpoint(ADDRESS, 5432, "sql")),
    "dns": (meshes.endpoint(ADDRESS, 5353, "udp"),),
    "raw": (meshes.endpoint(ADDRESS, 9000, "any"),),
    "again": (meshes.endpoint(ADDRESS, 9000),),
}


def planned() -> tuple[plan.Layer, plan.Layer]:
    """The inbound layer and that of the listeners."""
    mesh = meshes.mesh(*SERVICES, endpoints=ENDPOINTS)
    whole = meshes.planned(mesh, meshes.sidecar("web-1", ADDRESS, labels=keys.labels(app="web")))
    inbound, listeners = whole.layers[-2:]
    return inbound, listeners


def test_each_port_is_served_as_what_it_speaks():
    """HTTP by routes, any other bytes as they come, and datagrams."""
    _, layer = planned()
    found = {one.name: (one.transport, one.chains[0].serves) for one in layer.listeners}
    key = plan.ClusterKey(direction=plan.Direction.INBOUND, port=5353, udp=True)
    assert found == {
        "inbound|5432": ("tcp", plan.Tcp(forward="inbound|5432")),
        "inbound|8080": ("tcp", plan.Http(route_configuration="inbound|8080")),
        "inbound|9000": ("tcp", plan.Tcp(forward="inbound|9000")),
        "inbound|5353/udp": ("udp", plan.Udp(cluster=key)),
        "http-proxy": ("tcp", plan.Http(route_configuration="http-proxy")),
    }


def test_what_services_call_different_things_is_taken_as_bytes():
    """Port 9000 is HTTP to one service and not to another: both are served."""
    layer, _ = planned()
    forward = next(one for one in layer.tcp_forwards if one.name == "inbound|9000")
    (share,) = forward.clusters
    assert share.cluster == plan.ClusterKey(direction=plan.Direction.INBOUND, port=9000)
    assert forward.idle_timeout_ms == 0
    assert [one.name for one in layer.route_configurations] == ["inbound|8080"]
    assert {one.key.port: one.addresses[0].host for one in layer.clusters} == dict.fromkeys(
        (5353, 5432, 8080, 9000), "127.0.0.1"
    )
