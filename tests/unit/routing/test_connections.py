# SPDX-License-Identifier: Apache-2.0
"""The order of routes for connections, and where these go."""

from collections.abc import Mapping

import pytest

from pilothouse.config import objects
from pilothouse.model import keys, services
from pilothouse.routing import accepting, catalogue, connections, parsed, plan, route_rules, rules
from pilothouse.routing import memo as memory
from tests.support import meshes

TCP = services.AppProtocol.TCP
DATABASE = meshes.service("db", meshes.port(5432, "tcp-sql", TCP))
NAMES = meshes.service("names", meshes.port(53, "udp-dns", services.AppProtocol.UDP))
GATEWAY = keys.ObjectKey("MeshGateway", "default", "edge")


def bound(*written: Mapping[keys.ObjectKey, objects.Config]) -> tuple[rules.Bound, ...]:
    """Rules at the gateway `edge`, in key order."""
    configs = {key: config for one in written for key, config in one.items()}
    read = {key: route_rules.rule(configs[key]) for key in sorted(configs)}
    known = {one.key: one for one in (DATABASE, NAMES)}
    found = rules.bind(memory.Memo(), read, known, {})
    return tuple(rules.at(one, GATEWAY) for one in found.values())


def rule(name: str, routes: str, **meta: object) -> Mapping[keys.ObjectKey, objects.Config]:
    """A rule of that gateway."""
    more = meta.pop("more", "")
    return meshes.rule(name, f"{{parents: [{{gateway: edge}}], {more} {routes}}}", **meta)


def port(transport: parsed.Transport, *hosts: str, number: int = 5432) -> connections.Port:
    """A listener of the gateway."""
    site = catalogue.Site(port=number, gateway=True, transport=transport)
    return connections.Port(listener="gateway|1", site=site, hosts=hosts or ("*",))


def tls(*names: str) -> str:
    """A match in the words of a `tls` route."""
    return f"{{serverNames: {list(names)}}}"


def test_the_exact_name_goes_first_then_the_longest_wildcard():
    """Whatever the age and the place of what is written."""
    found = connections.connect(
        port("tls"),
        (),
        bound(
            rule("a", "tls: [{destinations: [{service: db}]}]"),
            rule("b", f"tls: [{{matches: [{tls('*.com', '*.example.com', 'a.example.com')}]}}]"),
        ),
    )
    assert [(chain.match.server_names, chain.forward.name[-7:]) for chain in found.chains] == [
        (("a.example.com",), "b/tls/0"),
        (("*.example.com",), "b/tls/0"),
        (("*.com",), "b/tls/0"),
        ((), "a/tls/0"),
    ]


def test_names_are_those_of_rule_listener_and_match():
    """A gateway takes what all of them mean."""
    found = connections.connect(
        port("tls", "*.example.com", "other.org"),
        (),
        bound(
            rule(
                "a",
                f"tls: [{{matches: [{tls('*.shop.example.com')}]}}]",
                more="hosts: ['*.shop.example.com', other.org],",
            ),
            rule("b", "tls: [{}]", more="hosts: [other.org],"),
            rule("c", "tls: [{}]"),
        ),
    )
    assert [chain.match.server_names for chain in found.chains] == [
        ("other.org",),
        ("*.shop.example.com",),
        ("*.example.com",),
    ]
    assert [chain.forward.origins[0].name for chain in found.chains] == ["b", "a", "c"]
    assert found.shadows == ()


def test_smaller_networks_go_first_and_destinations_before_sources():
    """Of what remains the older rule, whose priority is higher where one is said."""
    found = connections.connect(
        port("tcp"),
        (),
        bound(
            rule("a", "tcp: [{}]"),
            rule("b", "tcp: [{matches: [{sourceCidrs: [10.0.0.0/8, 10.1.1.1, '2001:db8::/32']}]}]"),
            rule("c", "tcp: [{matches: [{destinationCidrs: [10.0.0.0/8]}]}]"),
            rule("d", "tcp: [{matches: [{sourceCidrs: [172.16.0.0/12]}]}]", more="priority: 1,"),
        ),
    )
    assert [
        (chain.forward.origins[0].name, chain.match.destinations, chain.match.sources)
        for chain in found.chains
    ] == [
        ("d", (), ("172.16.0.0/12",)),
        ("c", ("10.0.0.0/8",), ()),
        ("b", (), ("10.1.1.1/32", "2001:db8::/32")),
        ("b", (), ("10.0.0.0/8",)),
        ("a", (), ()),
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{}", "{}"),
        ("{sourceCidrs: [10.0.0.0/8]}", "{sourceCidrs: [10.0.0.0/8]}"),
        ("{destinationCidrs: [10.0.0.0/8]}", "{destinationCidrs: [10.0.0.0/8]}"),
        ("{}", "{port: 5432}"),
    ],
)
def test_what_the_older_rule_takes_the_younger_never_gets(first: str, second: str):
    """It is told so."""
    found = connections.connect(
        port("tcp"),
        (),
        bound(
            rule("old", f"tcp: [{{matches: [{first}]}}]", created=1),
            rule("young", f"tcp: [{{matches: [{second}]}}]", created=2),
        ),
    )
    (chain,) = found.chains
    assert chain.forward.origins[0].name == "old"
    (shadow,) = found.shadows
    assert (shadow.loser.name, shadow.winner.name, shadow.field) == ("young", "old", "spec.tcp[0]")


def test_other_ports_are_other_routes():
    """A match may be for one port of the parent only."""
    routes = "tcp: [{matches: [{port: 1}], destinations: [{service: db}]}]"
    assert connections.connect(port("tcp"), (), bound(rule("a", routes))).chains == ()


def test_weights_change_nothing_but_the_forward():
    """The chains stay what they are."""

    def made(weight: int) -> connections.Connected:
        to = f"[{{service: db, labels: {{v: a}}, weight: {weight}}}, {{service: db}}]"
        return connections.connect(
            port("tcp"), (), bound(rule("a", f"tcp: [{{destinations: {to}}}]"))
        )

    one, two = made(1), made(9)
    assert [(chain.match, chain.forward.name) for chain in one.chains] == [
        (chain.match, chain.forward.name) for chain in two.chains
    ]
    assert [share.weight for share in two.forwards[0].clusters] == [9, 1]
    assert [str(key.service) for key in one.uses] == ["default/db", "default/db"]


def test_what_leads_nowhere_keeps_its_share():
    """And what is nowhere at all is closed."""
    found = connections.connect(
        port("tcp"),
        (),
        bound(
            rule(
                "a",
                "tcp: [{matches: [{sourceCidrs: [10.0.0.1]}],"
                " destinations: [{service: db, weight: 3}, {service: missing}]},"
                " {destinations: [{service: names}]}]",
            )
        ),
    )
    shares = [
        [(share.cluster is None, share.weight) for share in one.clusters] for one in found.forwards
    ]
    assert shares == [[(False, 3), (True, 1)], [(True, 1)]]


def test_sessions_of_udp_have_one_place():
    """UDP ports are others than those of TCP."""
    found = connections.connect(
        port("udp", number=53),
        (),
        bound(rule("a", "udp: [{destinations: [{service: names}], idleTimeout: 5s}]")),
    )
    (chain,) = found.chains
    assert chain.match == accepting.ANY
    assert chain.forward.idle_timeout_ms == 5_000
    assert chain.forward.clusters == (
        plan.WeightedCluster(
            cluster=plan.ClusterKey(
                direction=plan.Direction.OUTBOUND, port=53, service=NAMES.key, udp=True
            ),
            weight=1,
        ),
    )


def test_at_a_gateway_only_what_is_for_it():
    """A match may be for other parents, or for clients in the mesh."""
    found = connections.connect(
        port("tcp"),
        (),
        bound(
            rule(
                "a",
                "tcp: [{matches: [{gateways: [mesh]}, {gateways: [other]}, {source: {namespace: x}}"
                ", {gateways: [default/edge], sourceCidrs: [10.0.0.1]}]}]",
            )
        ),
    )
    assert [chain.match.sources for chain in found.chains] == [("10.0.0.1/32",)]
