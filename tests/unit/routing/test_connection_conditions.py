# SPDX-License-Identifier: Apache-2.0
"""What routing tells about routes for connections, and about what their parents have."""

import pytest

from pilothouse.config import objects
from pilothouse.model import services
from tests.support import meshes

TCP, TLS, UDP = (services.AppProtocol(name) for name in ("TCP", "TLS", "UDP"))
KNOWN = (
    meshes.service("web"),
    meshes.service("db", meshes.port(5432, "sql", TCP)),
    meshes.service("vault", meshes.port(8200, "tls", TLS)),
    meshes.service("dns", meshes.port(53, "udp", UDP), meshes.port(53, "tcp", TCP)),
    meshes.service("both", meshes.port(80), meshes.port(81, "a", TCP), meshes.port(82, "b", TCP)),
    meshes.external("api", "{hosts: [api.example], ports: [{number: 80}]}"),
    meshes.gateway(
        "edge",
        "{selector: {app: edge}, listeners: [{name: http, port: 80, protocol: HTTP},"
        " {name: sql, port: 5432, protocol: TCP}, {name: dns, port: 53, protocol: UDP},"
        " {name: tls, port: 443, protocol: TLS, hosts: ['*.example.com'],"
        " tls: {mode: PASSTHROUGH}}]}",
    ),
)


def told(spec: str, type_: str = "ResolvedRefs") -> objects.Condition | None:
    """The condition of a rule with this spec."""
    mesh = meshes.mesh(*KNOWN, meshes.rule("r", f"{{{spec}}}"))
    return meshes.condition(mesh, "RouteRule", "r", type_)


@pytest.mark.parametrize(
    "spec",
    [
        "parents: [{service: db}], tcp: [{}]",
        "parents: [{service: vault}], tls: [{destinations: [{service: vault}, {service: db}]}]",
        "parents: [{service: dns}], udp: [{}]",
        "parents: [{service: dns}], tcp: [{}], udp: [{destinations: [{service: dns}]}]",
        "parents: [{service: both, port: 81}], tcp: [{}]",
        "parents: [{service: both}], http: [{}], tcp: [{destinations: [{service: db}]}]",
        "parents: [{gateway: edge}], tcp: [{destinations: [{service: db}]}]",
        (
            "parents: [{gateway: edge}], tls: [{matches: [{serverNames: [a.example.com]}],"
            " destinations: [{service: vault}]}]"
        ),
        "parents: [{gateway: edge, listener: dns}], udp: [{destinations: [{service: dns}]}]",
        (
            "parents: [{service: web}, {gateway: edge}], http: [{matches: [{gateways: [mesh]}]},"
            " {matches: [{gateways: [edge]}], destinations: [{service: web}]}]"
        ),
    ],
)
def test_references_that_hold(spec: str):
    """Each family of routes is for the ports and listeners that speak it."""
    found = told(spec)
    assert found is not None
    assert (found.status, found.message) == (True, "")
    assert told(spec, "Conflicted") is None


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        (
            "parents: [{service: web}], tcp: [{}]",
            "NoMatchingParent",
            "spec.parents[0]: service default/web has no TCP port",
        ),
        (
            "parents: [{service: db}], http: [{}], tls: [{}]",
            "NoMatchingParent",
            "spec.parents[0]: service default/db has no HTTP or TLS port",
        ),
        (
            "parents: [{service: both, port: 80}], tcp: [{}]",
            "NoMatchingParent",
            "spec.parents[0]: service default/both has no TCP port 80",
        ),
        (
            "parents: [{service: db}], tcp: [{}], udp: [{}]",
            "NoMatchingParent",
            "spec.udp[0]: no parent has a port or listener for UDP",
        ),
        (
            "parents: [{service: db}], tcp: [{destinations: [{service: gone}]}]",
            "BackendNotFound",
            "spec.tcp[0].destinations[0]: service default/gone does not exist",
        ),
        (
            "parents: [{service: db}], tcp: [{destinations: [{service: both}]}]",
            "PortNotFound",
            "spec.tcp[0].destinations[0]: service default/both has no port 5432 and more than one",
        ),
        (
            "parents: [{service: dns}], udp: [{destinations: [{service: db}]}]",
            "PortNotFound",
            "spec.udp[0].destinations[0]: service default/db has no port 53",
        ),
        (
            "parents: [{service: dns}], udp: [{destinations: [{externalService: api}]}]",
            "PortNotFound",
            "spec.udp[0].destinations[0]: external service default/api has no ports of UDP",
        ),
        (
            "parents: [{gateway: edge, listener: http}], tcp: [{destinations: [{service: db}]}]",
            "NoMatchingParent",
            "spec.parents[0]: listener http of MeshGateway/default/edge accepts no TCP",
        ),
        (
            (
                "parents: [{gateway: edge}], tls: [{matches: [{serverNames: [a.example.org]}],"
                " destinations: [{service: vault}]}]"
            ),
            "NoMatchingListenerHostname",
            "spec.tls[0].matches[0]: no listener has the host a.example.org",
        ),
        (
            "parents: [{gateway: edge}], hosts: [a.org], tls: [{destinations: [{service: vault}]}]",
            "NoMatchingListenerHostname",
            "spec.parents[0]: none of the rule's hosts is a host of a listener of",
        ),
    ],
)
def test_references_that_dangle(spec: str, reason: str, words: str):
    """The condition names the field."""
    found = told(spec)
    assert found is not None
    assert (found.status, found.reason) == (False, reason)
    assert words in found.message


def test_labels_of_connections_that_select_nothing():
    """As for requests."""
    spec = "parents: [{service: db}], tcp: [{destinations: [{service: db, labels: {v: a}}]}]"
    found = told(spec, "NoEndpoints")
    assert found is not None
    assert "no endpoint of service default/db has the labels v=a" in found.message
