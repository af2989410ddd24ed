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
