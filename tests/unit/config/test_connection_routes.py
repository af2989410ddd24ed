# SPDX-License-Identifier: Apache-2.0
"""The rules of routes for connections, and of whose traffic matches take.

Expected: the comments of the proto of RouteRule.
"""

import pytest

from pilothouse.config import validation
from tests.support import configs

MESH = "[{service: a}]"
EDGE = "[{gateway: g}, {gateway: h, namespace: n}]"
BOTH = "[{service: a}, {gateway: g}]"


def broken(spec: str, parents: str = MESH) -> list[str]:
    """The violations of a rule in the namespace default, as ``FIELD: MESSAGE``."""
    found = validation.validate(configs.with_spec("RouteRule", f"parents: {parents}\n{spec}"))
    return [str(one) for one in found]


RIGHT = [
    ("tls: [{}]", MESH),
    ("tcp: [{}]", MESH),
    ("udp: [{}]", MESH),
    ("tls: [{matches: [{serverNames: [A.example.com, '*.example.com']}]}]", MESH),
    (
        "tls: [{matches: [{destinationCidrs: [10.1.2.3], sourceCidrs: ['::1', '10.0.0.0/8']}]}]",
        MESH,
    ),
    (
        "tcp: [{matches: [{port: 1, source: {service: b, labels: {v: '1'}}}], idleTimeout: 0s}]",
        MESH,
    ),
    ("tcp: [{destinations: [{service: b, weight: 0, port: 9}, {externalService: c}]}]", EDGE),
    ("udp: [{destinations: [{service: b}], idleTimeout: 1ms}]", EDGE),
    ("http: [{name: a}]\ngrpc: [{name: b}]\ntls: [{name: c}]\ntcp: [{name: d}]", MESH),
    ("http: [{matches: [{gateways: [mesh], source: {namespace: b}}]}]", MESH),
    (
        "http: [{matches: [{gateways: [g]}, {gateways: [n/h, default/g]}], redirect: {port: 1}}]",
        EDGE,
    ),
    ("grpc: [{matches: [{gateways: [mesh], source: {namespace: b}}]}]", "[{externalService: a}]"),
    ("tcp: [{matches: [{gateways: [mesh, g]}], destinations: [{service: b}]}]", BOTH),
]


@pytest.mark.parametrize(("spec", "parents"), RIGHT)
def test_what_the_comments_allow_breaks_nothing(spec: str, parents: str):
    """Each as it stands."""
    assert broken(spec, parents) == []


WRONG = [
    ("hosts: []", MESH, "spec.http: at least one route is required"),
    ("tls: [{name: a}]\ntcp: [{name: a}]", MESH, "spec.tcp[0].name: the name a is taken"),
    ("tls: [{matches: [{serverNames: ['*']}]}]", MESH, "spec.tls[0].matches[0].serverNames[0]: "),
    (
        "tls: [{matches: [{serverNames: [a, A]}]}]",
        MESH,
        "spec.tls[0].matches[0].serverNames[1]: is",
    ),
    ("tls: [{matches: [{serverNames: ['a:1']}]}]", MESH, "spec.tls[0].matches[0].serverNames[0]: "),
    (
        "tls: [{matches: [{destinationCidrs: [a]}]}]",
        MESH,
        "spec.tls[0].matches[0].destinationCidrs",
    ),
    (
        "tcp: [{matches: [{sourceCidrs: [10.0.0.0/33]}]}]",
        MESH,
        "spec.tcp[0].matches[0].sourceCidrs",
    ),
    (
        "tcp: [{matches: [{sourceCidrs: [10.1.2.3/8]}]}]",
        MESH,
        "spec.tcp[0].matches[0].sourceCidrs[0]: must be a network, as 10.0.0.0/8 is",
    ),
    (
        "tcp: [{matches: [{sourceCidrs: [10.0.0.0/255.0.0.0]}]}]",
        MESH,
        "spec.tcp[0].matches[0].sourceCidrs[0]: must be an IP address or a network",
    ),
    ("tcp: [{matches: [{port: 0}]}]", MESH, "spec.tcp[0].matches[0].port: must be from 1"),
    ("tcp: [{}]", EDGE, "spec.tcp[0].destinations: is required under a gateway parent"),
    ("udp: [{}]", EDGE, "spec.udp[0].destinations: is required under a gateway parent"),
    ("tcp: [{destinations: [{}]}]", MESH, "spec.tcp[0].destinations[0]: one of `service`"),
    (
        "tls: [{destinations: [{service: b, weight: 0}]}]",
        MESH,
        "spec.tls[0].destinations: at least one needs a weight",
    ),
    (
        "tls: [{destinations: [{service: b, requestHeaders: {remove: [a]}}]}]",
        MESH,
        "spec.tls[0].destinations[0].requestHeaders: is not for connections",
    ),
    (
        "udp: [{destinations: [{service: b, weight: 1}]}]",
        MESH,
        "spec.udp[0].destinations[0].weight: is not for UDP",
    ),
    (
        "udp: [{destinations: [{service: b}, {service: c}]}]",
        MESH,
        "spec.udp[0].destinations: a session goes to one place",
    ),
    ("udp: [{idleTimeout: 0s}]", MESH, "spec.udp[0].idleTimeout: must be greater than 0s"),
]


@pytest.mark.parametrize(("spec", "parents", "expected"), WRONG)
def test_each_rule_of_connections_is_told_by_its_field(spec: str, parents: str, expected: str):
    """One violation, which begins with the field."""
    (found,) = broken(spec, parents)
    assert found.startswith(expected)


CLIENTS = [
    ("{source: {}}", MESH, "source: one of `service`, `labels` or `namespace` is required"),
    ("{source: {service: 'a.b'}}", MESH, "source.service: must be a DNS label"),
    ("{source: {labels: {'-': b}}}", MESH, "source.labels[-]: "),
    ("{source: {namespace: B}}", MESH, "source.namespace: must be a DNS label"),
    ("{source: {service: b}}", BOTH, "source: is for clients in the mesh"),
    ("{source: {service: b}, gateways: [mesh, g]}", BOTH, "source: is for clients in the mesh"),
    ("{gateways: [mesh]}", EDGE, "gateways[0]: `mesh` is for a rule with a parent that is a serv"),
    ("{gateways: [i]}", EDGE, "gateways[0]: must be a parent of the rule, 'i' is none"),
    ("{gateways: [h]}", EDGE, "gateways[0]: must be a parent of the rule, 'h' is none"),
    ("{gateways: [N/h]}", EDGE, "gateways[0]: must be `mesh`, NAME or NAMESPACE/NAME, is 'N/h'"),
    ("{gateways: [g, default/g]}", EDGE, "gateways[1]: the gateway default/g is taken by"),
]


@pytest.mark.parametrize("family", ["http", "grpc", "tls", "tcp"])
@pytest.mark.parametrize(("match", "parents", "expected"), CLIENTS)
def test_the_clients_of_a_match(family: str, match: str, parents: str, expected: str):
    """The same rules in all families."""
    route = f"{family}: [{{matches: [{match}], destinations: [{{service: b}}]}}]"
    (found,) = broken(route, parents)
    assert found.startswith(f"spec.{family}[0].matches[0].{expected}")
