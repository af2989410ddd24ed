# SPDX-License-Identifier: Apache-2.0
"""Which hosts clients may write besides the names of services, and where these lead."""

import pytest

from pilothouse.model import keys, services
from pilothouse.routing import hosts, plan, planner
from tests.support import meshes

LABEL = hosts.POD_LABEL
HEADLESS = meshes.service("web", meshes.port(80, target=8080), cluster_ips=())
PODS = {
    "web": tuple(
        services.Endpoint(
            address=f"10.1.{number}.7",
            port=8080,
            port_name="http",
            labels=keys.labels({"app": "web", LABEL: f"web-{number}"}),
        )
        for number in (0, 1)
    )
}


def alias(name: str, of: str, *ports: services.Port) -> services.Service:
    key = meshes.service_key(name)
    return services.Service(key=key, ports=ports, external_name=of)


def domains(mesh: planner.Mesh, name: str = "client") -> dict[str, str]:
    """Each domain that a client may write, and its virtual host."""
    layer = meshes.planned(mesh, meshes.sidecar(name)).layers[0]
    (configuration,) = layer.route_configurations
    found: dict[str, str] = {}
    for host in configuration.virtual_hosts:
        for domain in host.domains:
            assert domain not in found, domain
            found[domain] = host.name
    return found


def cluster(mesh: planner.Mesh, host: str, name: str = "client") -> plan.Cluster:
    """The cluster that the requests for a host go to."""
    layer = meshes.planned(mesh, meshes.sidecar(name)).layers[0]
    (configuration,) = layer.route_configurations
    found = next(
        one for one in configuration.virtual_hosts if one.name == domains(mesh, name)[host]
    )
    action = found.routes[-1].action
    assert isinstance(action, plan.Forward)
    (share,) = action.clusters
    return next(one for one in layer.clusters if one.key == share.cluster)


@pytest.mark.parametrize(
    "host",
    [
        "web-1.web",
        "web-1.web:80",
        "web-1.web.default",
        "web-1.web.default.svc:80",
        "web-1.web.default.svc.cluster.local",
    ],
)
def test_a_pod_of_a_stateful_set_has_names_below_its_service(host: str):
    """Its cluster has the endpoints that carry its label, wherever they are."""
    mesh = meshes.mesh(HEADLESS, endpoints=PODS)
    assert cluster(mesh, host).key.labels == ((LABEL, "web-1"),)
    endpoints = meshes.planned(mesh, meshes.sidecar()).layers[1].endpoints
    (one,) = (each for each in endpoints if each.key.labels == ((LABEL, "web-1"),))
    assert one.localities[0].addresses == (plan.Address(host="10.1.1.7", port=8080),)


def test_clients_of_other_namespaces_say_the_namespace():
    """As with services."""
    found = domains(meshes.mesh(HEADLESS, endpoints=PODS), "client.other")
    assert "web-0.web" not in found
    assert found["web-0.web.default"] == "web-0.web.default:80"


def test_pods_of_services_with_an_address_have_no_names():
    """Their clients are not to choose."""
    mesh = meshes.mesh(meshes.service("web", 80, cluster_ips=("10.96.0.1",)), endpoints=PODS)
    assert not [host for host in domains(mesh) if host.startswith("web-0")]


def test_a_pod_that_moves_changes_no_route():
    """Only its endpoint is another one."""
    builder = planner.Planner()
    before = builder.update(meshes.mesh_state(HEADLESS, endpoints=PODS))
    first = meshes.planned(before, meshes.sidecar())
    moved = [
        services.Endpoint(
            **{**{name: getattr(one, name) for name in one.__slots__}, "address": f"10.1.{n}.9"}
        )
        for n, one in enumerate(PODS["web"])
    ]
    after = builder.update(meshes.mesh_state(HEADLESS, endpoints={"web": moved}))
    second = meshes.planned(after, meshes.sidecar())
    assert second.layers[0] is first.layers[0]
    assert second.layers[1] is not first.layers[1]


def test_a_service_that_is_called_like_a_pod_keeps_its_name():
    """`web-0.web` is a service in the namespace `web`, too."""
    other = meshes.service("web-0.web", 80)
    found = domains(meshes.mesh(HEADLESS, other, endpoints=PODS))
    assert found["web-0.web"] == "web-0.web:80"
    assert found["web-1.web"] == "web-1.web.default:80"


@pytest.mark.parametrize("of", ["shop.prod", "SHOP.prod.svc.", "shop.prod.svc.cluster.local"])
def test_an_alias_of_a_service_is_one_more_name(of: str):
    """With the routes of the service, at its ports."""
    mesh = meshes.mesh(meshes.service("shop.prod", 80, 81), alias("old", of))
    found = domains(mesh)
    for host in ("old", "old.default", "old.default.svc", "old.default.svc.cluster.local"):
        assert (found[host], found[f"{host}:81"]) == ("shop.prod:80", "shop.prod:81")
    elsewhere = domains(mesh, "client.other")
    assert elsewhere["old.default"] == "shop.prod:80"
    assert "old" not in elsewhere


def test_an_alias_of_an_alias_and_one_of_itself():
    """The first leads to the service, the others nowhere."""
    mesh = meshes.mesh(
        meshes.service("shop", 80),
        alias("one", "two.default"),
        alias("two", "shop.default.svc"),
        alias("round", "about.default"),
        alias("about", "round.default"),
    )
    found = domains(mesh)
    assert (found["one"], found["two"]) == ("shop.default:80", "shop.default:80")
    assert not [host for host in found if host.startswith(("round", "about"))]


def test_an_alias_of_an_external_service():
    """At its ports, by its rules."""
    external = meshes.external("api", "{hosts: [api.example.com], ports: [{number: 80}]}")
    found = domains(meshes.mesh(external, alias("old", "API.example.com.")))
    assert found["old"] == found["api.example.com"] == "external:api.default:80"


def test_an_alias_of_a_host_outside():
    """It is asked for by DNS, at the ports of the alias, or at port 80."""
    http = meshes.port(8080, target=80)
    mesh = meshes.mesh(alias("a", "a.example.com."), alias("b", "b.example.com", http))
    assert cluster(mesh, "a").addresses == (plan.Address(host="a.example.com", port=80),)
    assert cluster(mesh, "b.default:8080").addresses == (
        plan.Address(host="b.example.com", port=80),
    )
    assert cluster(mesh, "a").resolution == "dns"
    assert "b" not in domains(mesh)


def test_addresses_of_pods_are_known_by_their_networks():
    """A pod more in a network changes nothing; requests go to what is asked for."""
    builder = planner.Planner()
    state = meshes.mesh_state(HEADLESS, endpoints=PODS)
    mesh = builder.update(state)
    found = domains(mesh)
    assert {host for host, name in found.items() if name == "addresses"} == {"10.1.0.*", "10.1.1.*"}
    assert cluster(mesh, "10.1.0.*").resolution == "asked"
    more = {"web": (*PODS["web"], meshes.endpoint("10.1.0.8"))}
    after = builder.update(meshes.mesh_state(HEADLESS, endpoints=more))
    planned = [meshes.planned(one, meshes.sidecar()).layers[0] for one in (mesh, after)]
    assert planned[0] is planned[1]


@pytest.mark.parametrize(
    ("address", "pattern"),
    [
        ("10.1.2.3", "10.1.2.*"),
        ("fd00:10:244:1::5", "[fd00:10:244:1:*"),
        ("fd00::5", "[fd00::5]*"),
        ("fd00:0:0:1::5", "[fd00:0:0:1::5]*"),
    ],
)
def test_networks_as_hosts_are_written(address: str, pattern: str):
    """Where a network of IPv6 has no spelling of its own, the address alone."""
    assert hosts.network(address) == pattern


def test_hosts_that_have_to_leave_by_the_gateway_are_none_that_nobody_speaks_of():
    """Where anything may be asked, their other ports are closed, and no domain is there twice."""
    external = meshes.external(
        "api", "{hosts: [api.com], ports: [{number: 443}], throughEgressGateway: true}"
    )
    found = domains(meshes.mesh(external, meshes.defaults("{outboundPolicy: ALLOW_ANY}")))
    assert found == {
        "*": "anywhere",
        "api.com": "closed:api.default",
        "api.com:*": "closed:api.default",
        "api.com:443": "external:api.default:443",
    }
