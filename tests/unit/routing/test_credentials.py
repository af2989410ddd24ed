# SPDX-License-Identifier: Apache-2.0
"""Secrets that objects name and that are not there: the objects' conditions say so."""

import json

import pytest

from pilothouse.model import secrets
from tests.support import meshes

ME, CA = secrets.SecretKey("default", "me"), secrets.SecretKey("shared", "ca")
CERTIFICATE = json.dumps("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n")
TLS = f"{{mode: MUTUAL, sni: a.example, clientCertificate: me, caCertificates: {CERTIFICATE}}}"
PAIR = "does not exist or has no certificate and key that can be used"
POLICY = meshes.policy("p", f"{{service: web, tls: {TLS}}}")
PORT = meshes.policy("p", f"{{service: web, ports: [{{port: 9080, tls: {TLS}}}]}}")
GATEWAY = meshes.gateway(
    "g",
    "{selector: {a: b}, listeners: [{name: https, port: 443, protocol: HTTPS, tls:"
    " {certificates: [{secret: me}], clientValidation: {caCertificates:"
    " [{secret: ca, namespace: shared}]}}}, {name: plain, port: 80, protocol: HTTP}]}",
)


def resolved(
    kind: str, name: str, held: secrets.Uses | None, *known: object
) -> tuple[bool, str, str]:
    whole = meshes.mesh(meshes.service("web"), *known, secrets=held)
    condition = meshes.condition(whole, kind, name)
    assert condition is not None
    return condition.status, condition.reason, condition.message


@pytest.mark.parametrize(
    ("policy", "where"),
    [
        (POLICY, "spec.tls.clientCertificate"),
        (PORT, "spec.ports: port 9080: tls.clientCertificate"),
    ],
)
def test_a_policy_says_which_secret_is_missing(policy: object, where: str):
    """One of that name that has only authorities will not do."""
    for held in ((), (secrets.AuthorityKey(ME),), (CA,)):
        assert resolved("DestinationPolicy", "p", frozenset(held), policy) == (
            False,
            "InvalidClientCertificateRef",
            f"{where}: secret default/me {PAIR}",
        )
    assert resolved("DestinationPolicy", "p", frozenset([ME]), policy)[0]


def test_a_policy_says_whose_signatures_are_missing():
    """A secret with a certificate alone will not do."""
    policy = meshes.policy("p", "{service: web, tls: {sni: a.example, caSecret: ca}}")
    key = secrets.SecretKey("default", "ca")
    assert resolved("DestinationPolicy", "p", frozenset([key]), policy) == (
        False,
        "InvalidCACertificateRef",
        "spec.tls.caSecret: secret default/ca does not exist or has no ca.crt that can be used",
    )
    held = frozenset([secrets.AuthorityKey(key)])
    assert resolved("DestinationPolicy", "p", held, policy)[0]


def test_a_policy_says_that_nobody_is_trusted_by_the_system():
    """Where discovery runs on a machine without authorities."""
    policy = meshes.policy("p", "{service: web, tls: {sni: a.example, systemAuthorities: true}}")
    assert resolved("DestinationPolicy", "p", frozenset(), policy) == (
        False,
        "InvalidCACertificateRef",
        "spec.tls.systemAuthorities: discovery's system has no authorities that it trusts",
    )
    held = frozenset([secrets.AuthorityKey(secrets.SYSTEM)])
    assert resolved("DestinationPolicy", "p", held, policy)[0]


def test_a_gateway_says_which_secrets_are_missing():
    """Its certificates, and whose it takes from clients; all at once."""
    status, reason, message = resolved("MeshGateway", "g", frozenset([CA]), GATEWAY)
    assert (status, reason) == (False, "InvalidCertificateRef")
    assert message == (
        f"listener https: tls.certificates: secret default/me {PAIR};"
        " listener https: tls.clientValidation.caCertificates: secret shared/ca does not exist or"
        " has no ca.crt that can be used"
    )
    status, reason, _ = resolved("MeshGateway", "g", frozenset([ME]), GATEWAY)
    assert (status, reason) == (False, "InvalidCACertificateRef")
    held = frozenset([ME, secrets.AuthorityKey(CA)])
    assert resolved("MeshGateway", "g", held, GATEWAY)[0]


def test_nothing_is_missing_while_nobody_knows():
    """Before the secrets have been read."""
    assert resolved("DestinationPolicy", "p", None, POLICY)[0]
    assert resolved("MeshGateway", "g", None, GATEWAY)[0]


def test_other_problems_are_told_beside():
    """In one condition."""
    policy = meshes.policy("p", f"{{service: none, tls: {TLS}}}")
    status, reason, message = resolved("DestinationPolicy", "p", frozenset(), policy)
    assert (status, reason) == (False, "BackendNotFound")
    assert message.count(";") == 1
    assert "secret default/me" in message
