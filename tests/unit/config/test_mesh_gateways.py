# SPDX-License-Identifier: Apache-2.0
"""The rules of a MeshGateway's listeners: TLS, ports that are shared, addresses of clients."""

import pytest

from pilothouse.config import validation
from tests.support import configs

NAMED = "subjectAltNames: [a.b, 'spiffe://c/d']"
HASH = "A" * 43 + "="
CERTIFIED = "certificates: [{secret: s}]"


def problems(*listeners: str) -> list[str]:
    """What is wrong with a gateway that has these listeners, FIELD: REASON."""
    shown = ", ".join(f"{{name: l{index}, {listener}}}" for index, listener in enumerate(listeners))
    spec = f"{{selector: {{app: gw}}, listeners: [{shown}]}}"
    found = validation.validate(configs.with_spec("MeshGateway", spec))
    return [f"{one.field.removeprefix('spec.listeners')}: {one.message}" for one in found]


def https(port: int = 443, tls: str = "", more: str = "") -> str:
    """A listener for HTTPS."""
    return f"port: {port}, protocol: HTTPS, tls: {{{CERTIFIED}{tls}}}{more}"


@pytest.mark.parametrize(
    "listener",
    [
        https(tls=", minVersion: TLS_1_0, maxVersion: TLS_1_1"),
        https(tls=", minVersion: TLS_1_3, maxVersion: TLS_1_3"),
        https(tls=", maxVersion: TLS_1_2, cipherSuites: [ECDHE-RSA-AES128-GCM-SHA256]"),
        https(tls=", clientValidation: {caCertificates: [{secret: ca}]}"),
        https(
            tls=", clientValidation: {caCertificates: [{secret: ca, namespace: default}],"
            f" optional: true, {NAMED}, publicKeyHashes: ['{HASH}'],"
            f" certificateHashes: ['{'0F' * 32}', '{':'.join(['0f'] * 32)}']}}"
        ),
        https(more=", http3: true, clientAddress: {trustedHops: 32}"),
        https(tls=", clientValidation: {caCertificates: [{secret: ca}]}", more=", http3: true"),
        https(more=", clientAddress: {proxyProtocol: true}"),
        "port: 443, protocol: TLS, tls: {mode: PASSTHROUGH}, hosts: ['*.a.b']",
        f"port: 443, protocol: TLS, tls: {{mode: TERMINATE, {CERTIFIED}}}",
        "port: 9000, protocol: TCP, clientAddress: {proxyProtocol: true}",
        "port: 53, protocol: UDP",
        "port: 53, protocol: UDP, address: '::'",
        "port: 80, protocol: HTTP, address: 10.0.0.1",
        "port: 53, protocol: UDP, allowedNamespaces: [a, '*']",
        "port: 80, protocol: HTTP, httpsRedirect: true",
        "port: 80, protocol: HTTP, httpsRedirect: true, httpsPort: 8443",
    ],
)
def test_listeners_that_are_right(listener: str):
    """Each way to listen."""
    assert problems(listener) == []


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        ("port: 443, protocol: TLS", ["[0].tls: is required when the protocol is TLS"]),
        (
            "port: 443, protocol: TLS, tls: {}",
            ["[0].tls.certificates: at least one is required"],
        ),
        (
            "port: 1, protocol: TCP, tls: {mode: PASSTHROUGH}, hosts: [a.b]",
            [
                "[0].hosts: must not be set when the protocol is TCP",
                "[0].tls: must not be set when the protocol is TCP",
                "[0].tls.mode: must not be PASSTHROUGH unless the protocol is TLS",
            ],
        ),
        (
            "port: 53, protocol: UDP, clientAddress: {trustedHops: 1}, http3: true",
            [
                "[0].http3: must not be set when the protocol is UDP",
                "[0].clientAddress: must not be set when the protocol is UDP",
            ],
        ),
        (
            f"port: 443, protocol: HTTPS, tls: {{mode: PASSTHROUGH, {CERTIFIED}}}",
            [
                "[0].tls.mode: must not be PASSTHROUGH unless the protocol is TLS",
                "[0].tls.certificates: must not be set when the mode is PASSTHROUGH",
            ],
        ),
        (
            https(tls=", clientValidation: {}"),
            ["[0].tls.clientValidation.caCertificates: must have exactly one entry, has 0"],
        ),
        (
            https(
                tls=", clientValidation: {caCertificates: [{secret: A, namespace: other}],"
                " subjectAltNames: [a.b, 'a:1', a.b], publicKeyHashes: [x],"
                " certificateHashes: [y]}"
            ),
            [
                "[0].tls.clientValidation.caCertificates[0].secret: must be a DNS subdomain",
                "[0].tls.clientValidation.caCertificates[0].namespace: must be the gateway's own",
                "[0].tls.clientValidation.subjectAltNames[1]: must be a host name",
                "[0].tls.clientValidation.subjectAltNames[2]: the name a.b is taken by",
                "[0].tls.clientValidation.publicKeyHashes[0]: must be a SHA-256 in base64",
                "[0].tls.clientValidation.certificateHashes[0]: must be a SHA-256 in hex",
            ],
        ),
        (
            https(tls=", maxVersion: TLS_1_1"),
            ["[0].tls.maxVersion: must not be older than TLS_1_2"],
        ),
        (
            https(tls=", minVersion: TLS_1_3, cipherSuites: [x, AES128-SHA]"),
            [
                "[0].tls.cipherSuites: must not be set when minVersion is TLS_1_3",
                "[0].tls.cipherSuites[0]: must be one of",
            ],
        ),
        (
            https(tls=", maxVersion: TLS_1_2", more=", http3: true"),
            ["[0].http3: must not be set when tls.maxVersion is older than TLS_1_3"],
        ),
        (
            https(more=", http3: true, clientAddress: {proxyProtocol: true, trustedHops: 33}"),
            [
                "[0].http3: must not be set together with clientAddress.proxyProtocol",
                "[0].clientAddress.trustedHops: must be at most 32, is 33",
            ],
        ),
        (
            "port: 1, protocol: TCP, clientAddress: {trustedHops: 1}, httpsRedirect: true",
            [
                "[0].httpsRedirect: must not be set when the protocol is TCP",
                "[0].clientAddress.trustedHops: must not be set when the protocol is TCP",
            ],
        ),
        (
            "port: 80, protocol: HTTP, address: 'localhost'",
            ["[0].address: must be an IP address, is 'localhost'"],
        ),
        (
            "port: 80, protocol: HTTP, allowedNamespaces: ['', A]",
            [
                "[0].allowedNamespaces[0]: is required",
                "[0].allowedNamespaces[1]: must be a DNS label",
            ],
        ),
        (
            "port: 80, protocol: HTTP, httpsPort: 0",
            [
                "[0].httpsPort: must not be set without httpsRedirect",
                "[0].httpsPort: must be from 1 to 65535",
            ],
        ),
    ],
)
def test_each_rule_is_told_by_its_field(listener: str, expected: list[str]):
    """All violations at once, in the order of the fields."""
    found = problems(listener)
    assert len(found) == len(expected), found
    for one, begins in zip(found, expected, strict=True):
        assert one.startswith(begins)


PASSED = "port: 443, protocol: TLS, tls: {mode: PASSTHROUGH}"


@pytest.mark.parametrize(
    ("listeners", "expected"),
    [
        ((https(more=", hosts: [a.b]"), f"{PASSED}, hosts: ['*.a.b']", https()), []),
        (("port: 53, protocol: UDP", "port: 53, protocol: TCP"), []),
        (
            (https(more=", hosts: [a.b, c.d]"), f"{PASSED}, hosts: [e.f, A.b]"),
            ["[1].hosts[1]: the host A.b at port 443 is taken by spec.listeners[0].hosts[0]"],
        ),
        (
            (https(), https()),
            ["[1].hosts: the host * at port 443 is taken by spec.listeners[0].hosts"],
        ),
        (
            ("port: 443, protocol: HTTP", https(), "port: 443, protocol: TCP"),
            [
                "[1].port: the port 443 is taken by spec.listeners[0].port",
                "[2].port: the port 443 is taken by spec.listeners[0].port",
            ],
        ),
        (
            ("port: 9, protocol: TCP", "port: 9, protocol: TCP"),
            ["[1].port: the port 9 is taken by spec.listeners[0].port"],
        ),
        (
            ("port: 9, protocol: UDP", "port: 9, protocol: UDP"),
            ["[1].port: the port 9 is taken by spec.listeners[0].port"],
        ),
        (
            (
                https(more=", hosts: [a.b], clientAddress: {proxyProtocol: true}"),
                https(more=", hosts: [c.d]"),
            ),
            ["[1].clientAddress: must be the same as spec.listeners[0].clientAddress"],
        ),
        (
            (
                https(more=", hosts: [a.b], address: '::1'"),
                https(more=", hosts: [c.d], address: '0::1'"),
                https(more=", hosts: [e.f], address: 127.0.0.1"),
                https(more=", hosts: [g.h]"),
                "port: 443, protocol: UDP, address: 127.0.0.1",
            ),
            [
                "[2].address: must be the same as spec.listeners[0].address",
                "[3].address: must be the same as spec.listeners[0].address",
            ],
        ),
        (
            (https(more=", hosts: [a.b], http3: true"), https(more=", hosts: [c.d]")),
            ["[0].http3: must not be set, for spec.listeners[1] has port 443 too"],
        ),
        (
            (https(more=", http3: true"), "port: 443, protocol: UDP"),
            ["[0].http3: must not be set, for spec.listeners[1] has port 443 too"],
        ),
    ],
)
def test_listeners_that_share_a_port(listeners: tuple[str, ...], expected: list[str]):
    """HTTPS and TLS with other hosts may; UDP has ports of its own."""
    found = problems(*listeners)
    assert len(found) == len(expected), found
    for one, begins in zip(found, expected, strict=True):
        assert one.startswith(begins)
