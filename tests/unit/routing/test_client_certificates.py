# SPDX-License-Identifier: Apache-2.0
"""Who is given the certificate that a DestinationPolicy names: proxies in its namespace only."""

import dataclasses

import pytest

from pilothouse.envoy import names, translate
from pilothouse.model import proxy, secrets
from pilothouse.xds import resources, types
from tests.support import certificates, meshes

POLICY = "tls: {mode: MUTUAL, sni: reviews.example, clientCertificate: client, caCertificates: pem}"
PRODUCER = meshes.policy("producer", f"{{service: reviews, {POLICY}}}")
CONSUMER = meshes.policy("consumer.shop", f"{{service: reviews, namespace: default, {POLICY}}}")
GATEWAYS = [
    {
        **meshes.gateway(
            f"edge.{namespace}",
            "{selector: {app: edge}, listeners: [{name: http, port: 80, protocol: HTTP}]}",
        ),
        **meshes.rule(
            f"edge.{namespace}",
            "{parents: [{gateway: edge}], http: [{destinations:"
            " [{service: reviews, namespace: default}]}]}",
        ),
    }
    for namespace in ("default", "shop")
]
IN_DEFAULT = secrets.SecretKey("default", "client")
IN_SHOP = secrets.SecretKey("shop", "client")
HELD = {key: certificates.make("client").secret(key) for key in (IN_DEFAULT, IN_SHOP)}


def snapshot(of: proxy.Proxy, *policies: object, held: object = None) -> resources.Snapshot:
    mesh = meshes.mesh(
        meshes.service("reviews"),
        *GATEWAYS,
        *policies,
        endpoints={"reviews": [meshes.endpoint("10.0.0.1", name="http-9080")]},
    )
    secrets_held = HELD if held is None else held
    return translate.Translator().snapshot(meshes.planned(mesh, of), secrets_held)


def given(found: resources.Snapshot) -> list[str]:
    return list(found.resources(types.SECRET.type_url))


def needed(found: resources.Snapshot) -> set[str]:
    """The secrets that clusters refer to."""
    return {
        name
        for one in found.resources(types.CLUSTER.type_url).values()
        for url, name in one.references
        if url == types.SECRET.type_url
    }


PROXIES = [meshes.sidecar, meshes.edge]


@pytest.mark.parametrize("kind", PROXIES)
def test_a_proxy_of_the_policys_namespace_is_given_it(kind: object):
    """And its cluster shows it."""
    found = snapshot(kind("edge"), PRODUCER)  # type: ignore[operator]
    assert given(found) == [names.secret(IN_DEFAULT)]
    assert needed(found) == set(given(found))


@pytest.mark.parametrize("kind", PROXIES)
@pytest.mark.parametrize("namespace", ["shop", "other"])
def test_a_proxy_of_another_namespace_is_not(kind: object, namespace: str):
    """Its cluster is closed: it needs no secret, and has no endpoints."""
    found = snapshot(kind(f"edge.{namespace}"), PRODUCER)  # type: ignore[operator]
    assert given(found) == []
    assert needed(found) == set()
    assert found.missing_references() == ()


@pytest.mark.parametrize("kind", PROXIES)
def test_a_consumers_policy_names_a_secret_of_its_own_namespace(kind: object):
    """Which the proxies of the service's namespace are not given."""
    theirs = snapshot(kind("edge.shop"), CONSUMER)  # type: ignore[operator]
    assert given(theirs) == [names.secret(IN_SHOP)]
    assert needed(theirs) == set(given(theirs))
    assert given(snapshot(kind("edge"), CONSUMER)) == []  # type: ignore[operator]


def test_a_missing_secret_closes_the_cluster():
    """Nothing refers to what is not there, which Envoy would wait for."""
    found = snapshot(meshes.sidecar(), PRODUCER, held={})
    assert needed(found) == set()
    assert found.missing_references() == ()


SIGNED = meshes.policy("signed", "{service: reviews, tls: {sni: reviews.example, caSecret: ca}}")
CA = secrets.SecretKey("default", "ca")
PAIR = certificates.make("ca")
WITH_CA = {CA: secrets.TlsSecret(key=CA, authorities=PAIR.certificate.encode())}


@pytest.mark.parametrize("kind", PROXIES)
@pytest.mark.parametrize("namespace", ["default", "shop"])
def test_everybody_may_know_who_signs(kind: object, namespace: str):
    """It is no secret; of what else the secret holds nothing is given."""
    both = {CA: dataclasses.replace(PAIR.secret(CA), authorities=b"signers")}
    for held in (WITH_CA, both):
        found = snapshot(kind(f"edge.{namespace}"), SIGNED, held=held)  # type: ignore[operator]
        assert given(found) == [names.authority(CA)]
        assert needed(found) == set(given(found))


@pytest.mark.parametrize("kind", PROXIES)
@pytest.mark.parametrize("held", [{}, {CA: PAIR.secret(CA)}])
def test_without_who_signs_the_cluster_is_closed(kind: object, held: object):
    """Nobody is talked to whose certificate cannot be checked."""
    found = snapshot(kind("edge"), SIGNED, held=held)  # type: ignore[operator]
    assert (given(found), needed(found), found.missing_references()) == ([], set(), ())
