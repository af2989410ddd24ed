# SPDX-License-Identifier: Apache-2.0
"""The hosts of a gateway's listeners for HTTPS, and what each answers for those of others."""

import pytest

from pilothouse.routing import plan
from tests.support import meshes

TLS = "port: 443, protocol: HTTPS, tls: {certificates: [{secret: s}]}"
WEB = meshes.service("web", 80)


def misdirected(*listeners: str, rules: tuple[dict, ...] = ()) -> dict[str, list[str]]:
    """By listener, the domains that it answers with 421."""
    shown = ", ".join(f"{{name: l{i}, {TLS}, hosts: [{one}]}}" for i, one in enumerate(listeners))
    edge = meshes.gateway("edge", f"{{selector: {{app: edge}}, listeners: [{shown}]}}")
    whole = meshes.planned(meshes.mesh(WEB, edge, *rules), meshes.edge())
    found = {}
    for layer in whole.layers:
        for configuration in layer.route_configurations:
            found[configuration.name.rpartition("|")[2]] = [
                domain
                for host in configuration.virtual_hosts
                for domain in host.domains
                if host.routes and host.routes[0].action == plan.DirectResponse(status=421)
            ]
    return found


def test_a_listener_alone_misdirects_nobody():
    """What it does not serve, nobody does."""
    assert misdirected("a.b, '*.c'") == {"l0": []}


def test_hosts_of_others_are_misdirected():
    """All of them, in order."""
    assert misdirected("a.b", "'*.c', d.e", "'*'") == {
        "l0": ["*", "*.c", "d.e"],
        "l1": ["*", "a.b"],
        "l2": ["*.c", "a.b", "d.e"],
    }


@pytest.mark.parametrize(
    ("own", "expected"),
    [("a.b", ["*"]), ("'*.h'", ["*", "*.x.h", "0.h"]), ("'*'", None)],
)
def test_many_hosts_of_others_are_not_listed(own: str, expected: list[str] | None):
    """Else the routes of a port would grow with the square of its listeners. What lies within a
    pattern of the listener's is theirs all the same."""
    many = ", ".join(f"n{number}.g" for number in range(101))
    found = misdirected(own, f"{many}, 0.h, '*.x.h'")["l0"]
    assert found == (expected or sorted([*(f"n{n}.g" for n in range(101)), "0.h", "*.x.h"]))


def test_a_host_without_a_route_is_not_taken_for_another_s():
    """It is 404: a virtual host without routes stands between it and the wider pattern."""
    shown = f"{{name: a, {TLS}, hosts: [x.b]}}, {{name: w, {TLS}, hosts: ['*.b']}}"
    edge = meshes.gateway("edge", f"{{selector: {{app: edge}}, listeners: [{shown}]}}")
    whole = meshes.planned(meshes.mesh(WEB, edge), meshes.edge())
    by_name = {one.name: one for layer in whole.layers for one in layer.route_configurations}
    hosts = {one.name: one.routes for one in by_name["gateway|443|edge.default|a"].virtual_hosts}
    assert hosts["x.b"] == ()
    assert len(hosts["421|elsewhere"]) == 1


def test_what_several_listeners_have_of_a_host_is_there_once() -> None:
    """Its rules are those of all, as one listener would have them, and come from every gateway."""

    def virtual_hosts(**gateways: str) -> dict[str, plan.VirtualHost]:
        known: list[object] = []
        for name, shown in gateways.items():
            listeners = ", ".join(
                f"{{name: l{i}, port: 80, protocol: HTTP, hosts: [{one}]}}"
                for i, one in enumerate(shown.split(", "))
            )
            known.append(
                meshes.gateway(name, f"{{selector: {{app: edge}}, listeners: [{listeners}]}}")
            )
        parents = ", ".join(f"{{gateway: {name}}}" for name in gateways)
        for number, hosts in enumerate(("[a.b]", "[a.b, c.d]", "[c.d, a.b]")):
            path = f"matches: [{{path: {{prefix: /{number}}}}}]"
            spec = (
                f"{{parents: [{parents}], hosts: {hosts}, "
                f"http: [{{{path}, destinations: [{{service: web}}]}}]}}"
            )
            known.append(meshes.rule(f"r{number}", spec))
        whole = meshes.planned(meshes.mesh(WEB, *known), meshes.edge())
        (made,) = [one for layer in whole.layers for one in layer.route_configurations]
        return {host.name: host for host in made.virtual_hosts}

    alone = virtual_hosts(one="'*'")
    assert [route.origins[0].name for route in alone["a.b"].routes] == ["r0", "r1", "r2"]
    assert virtual_hosts(one="'*', a.b") == alone
    assert virtual_hosts(one="c.d, '*', a.b") == alone
    both = virtual_hosts(one="'*', a.b", two="c.d")
    assert {name: host.routes for name, host in both.items()} == {
        name: host.routes for name, host in alone.items()
    }
    assert [key.name for key in both["a.b"].origins] == ["one", "r0", "r1", "r2"]
    assert [key.name for key in both["c.d"].origins] == ["one", "two", "r1", "r2"]
