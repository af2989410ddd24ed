# SPDX-License-Identifier: Apache-2.0
"""Which TLS, and which certificates, a DestinationPolicy may ask for."""

import json

import pytest

from pilothouse.config import validation
from pilothouse.model import secrets
from pilothouse.routing import policies, upstreams
from tests.support import configs, meshes

CA = f"caCertificates: {json.dumps('-----BEGIN CERTIFICATE-----MAA=-----END CERTIFICATE-----')}"
LIST = json.dumps("-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n")
KEY = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="  # of nothing at all, as RFC 7469 writes one
HEX = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
SUITES = "ECDHE-ECDSA-AES128-GCM-SHA256, ECDHE-RSA-AES128-GCM-SHA256"


TUNNEL = "sni: a.example, insecureSkipVerify: true, tunnel: {ipAddress: 192.0.2.1"


def spec(says: str) -> str:
    return f"{{service: a, tls: {{sni: a.example, {says}}}}}"


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (f"{CA}, minVersion: TLS_1_2, maxVersion: TLS_1_2, cipherSuites: [{SUITES}]", []),
        (f"{CA}, minVersion: TLS_1_3, maxVersion: TLS_1_3, revocationLists: {LIST}", []),
        (f"publicKeyHashes: ['{KEY}'], certificateHashes: ['{HEX}']", []),
        (f"certificateHashes: ['{':'.join(['0F'] * 32)}']", []),
        (
            f"{CA}, minVersion: TLS_1_3, maxVersion: TLS_1_2, cipherSuites: [a, '', a]",
            [
                "maxVersion: must not be older than minVersion",
                "cipherSuites: must not be set when minVersion is TLS_1_3, whose suites are fixed",
                "cipherSuites[0]: must be one of",
                "cipherSuites[1]: is required",
                "cipherSuites[2]: must be one of",
                "cipherSuites[2]: the cipher suite a is taken by spec.tls.cipherSuites[0]",
            ],
        ),
        (
            f"publicKeyHashes: [a, '{HEX}', ''], certificateHashes: ['{KEY}', '{HEX}', '{HEX}']",
            [
                "publicKeyHashes[0]: must be a SHA-256 in base64, is 'a'",
                f"publicKeyHashes[1]: must be a SHA-256 in base64, is '{HEX}'",
                "publicKeyHashes[2]: is required",
                f"certificateHashes[0]: must be a SHA-256 in hex, is '{KEY}'",
                f"certificateHashes[2]: the hash {HEX} is taken by spec.tls.certificateHashes[1]",
            ],
        ),
        (
            f"subjectAltNames: [b.example], publicKeyHashes: ['{KEY}'], revocationLists: {LIST}",
            [
                "subjectAltNames: must not be set unless it is said who signs",
                "revocationLists: must not be set unless it is said who signs",
            ],
        ),
        (f"revocationLists: {LIST}", ["caCertificates: is required"]),
        (f"caSecret: a.b, subjectAltNames: [b.example], publicKeyHashes: ['{KEY}']", []),
        (
            f"caSecret: a b, {CA}, revocationLists: {LIST}",
            [
                "caSecret: must be",
                "caSecret: must not be set together with caCertificates, revocationLists",
            ],
        ),
        (f"systemAuthorities: true, subjectAltNames: [b.example], publicKeyHashes: ['{KEY}']", []),
        (
            f"systemAuthorities: true, {CA}, caSecret: a, revocationLists: {LIST}",
            [
                (
                    "systemAuthorities: must not be set together with caCertificates,"
                    " revocationLists, caSecret"
                )
            ],
        ),
        (
            "caSecret: a, insecureSkipVerify: true",
            ["insecureSkipVerify: must not be set together with caSecret"],
        ),
        (
            f"{CA}, revocationLists: '-----BEGIN CERTIFICATE-----MAA=-----END CERTIFICATE-----'",
            ["revocationLists: must be PEM lists, and nothing else"],
        ),
        (
            f"insecureSkipVerify: true, certificateHashes: ['{HEX}'], revocationLists: {LIST}",
            [
                (
                    "insecureSkipVerify: must not be set together with certificateHashes,"
                    " revocationLists"
                )
            ],
        ),
    ],
)
def test_what_is_wrong(says: str, expected: list[str]):
    """Also what would count for nothing."""
    config = configs.with_spec("DestinationPolicy", spec(says))
    found = [str(one).removeprefix("spec.tls.") for one in validation.validate(config)]
    assert len(found) == len(expected)
    for one, begin in zip(found, expected, strict=True):
        assert one.startswith(begin)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (f"externalService: a, tls: {{{TUNNEL}, port: 3128}}}}", []),
        (
            (
                f"externalService: a, connectionPool: {{proxyProtocol: V1}},"
                f" tls: {{{TUNNEL}, port: 3128}}}}, ports: [{{port: 1, tls: {{{TUNNEL}}}}}}}]"
            ),
            [
                "spec.tls.tunnel: must not be set together with connectionPool.proxyProtocol",
                "spec.ports[0].tls.tunnel.port: is required: a number from 1 to 65535",
            ],
        ),
        (
            (
                "externalService: a, tls: {sni: a.example, insecureSkipVerify: true,"
                " tunnel: {ipAddress: proxy.example, port: 65536}}"
            ),
            [
                "spec.tls.tunnel.ipAddress: must be an IP address, is 'proxy.example'",
                "spec.tls.tunnel.port: must be from 1 to 65535, is 65536",
            ],
        ),
        (
            f"service: a, tls: {{{TUNNEL}, port: 1}}}}",
            ["spec.tls.tunnel: must not be set for a service of the mesh"],
        ),
    ],
)
def test_tunnels_are_for_external_services(spec: str, expected: list[str]):
    """And their proxy is told by its address."""
    config = configs.with_spec("DestinationPolicy", f"{{{spec}}}")
    assert [str(one) for one in validation.validate(config)] == expected


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (
            "insecureSkipVerify: true, tunnel: {ipAddress: 192.0.2.1, port: 3128}",
            upstreams.Tls(sni="a.example", tunnel=("192.0.2.1", 3128)),
        ),
        (
            f"minVersion: TLS_1_3, certificateHashes: ['{HEX.upper()}'], publicKeyHashes: [b, a]",
            upstreams.Tls(
                sni="a.example",
                min_version="1.3",
                certificate_hashes=(HEX,),
                public_key_hashes=("a", "b"),
            ),
        ),
        (
            "systemAuthorities: true",
            upstreams.Tls(
                sni="a.example", authority=secrets.SYSTEM, subject_alt_names=("a.example",)
            ),
        ),
        (
            "caSecret: c",
            upstreams.Tls(
                sni="a.example",
                authority=secrets.SecretKey("default", "c"),
                subject_alt_names=("a.example",),
            ),
        ),
        (
            (
                "caCertificates: c, publicKeyHashes: [a], revocationLists: r, maxVersion: TLS_1_2,"
                " cipherSuites: [z, y]"
            ),
            upstreams.Tls(
                sni="a.example",
                ca_certificates="c",
                subject_alt_names=("a.example",),
                public_key_hashes=("a",),
                revocation_lists="r",
                max_version="1.2",
                ciphers=("z", "y"),
            ),
        ),
    ],
)
def test_how_it_is_read(says: str, expected: upstreams.Tls):
    """Without an authority, no name is compared: anybody may write any name."""
    (config,) = meshes.policy("p", spec(says)).values()
    assert policies.policy(config).sections["tls"] == expected
