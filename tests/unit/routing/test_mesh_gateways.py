# SPDX-License-Identifier: Apache-2.0
"""What is read of a MeshGateway's listeners."""

import pytest

from pilothouse.model import secrets
from pilothouse.routing import accepting, mesh_gateways, parsed
from tests.support import meshes

SHOP, CA = secrets.SecretKey("default", "shop"), secrets.SecretKey("default", "ca")


def read(listener: str) -> parsed.GatewayListener:
    """The only listener of a gateway."""
    spec = f"{{selector: {{app: edge}}, listeners: [{{name: l, port: 443, {listener}}}]}}"
    (config,) = meshes.gateway("edge", spec).values()
    (only,) = mesh_gateways.gateway(config).listeners
    return only


@pytest.mark.parametrize(
    ("protocol", "transport"),
    [("HTTP", "http"), ("HTTPS", "http"), ("TLS", "tls"), ("TCP", "tcp"), ("UDP", "udp")],
)
def test_which_routes_a_listener_takes(protocol: str, transport: str):
    """Those of its protocol; what is unset is its default."""
    found = read(f"protocol: {protocol}")
    assert (found.protocol, found.transport) == (protocol.lower(), transport)
    assert found.hosts == ("*",)
    assert found.client_address == accepting.FROM_CONNECTION
    assert (found.redirect_port, found.http3) == (None, False)


def test_what_is_passed_through_is_not_decrypted():
    """So it has no TLS of its own."""
    assert read("protocol: TLS, tls: {mode: PASSTHROUGH}").tls is None


@pytest.mark.parametrize(("protocol", "alpn"), [("HTTPS", ("h2", "http/1.1")), ("TLS", ())])
def test_tls_that_says_little(protocol: str, alpn: tuple[str, ...]):
    """TLS 1.2 and newer; protocols are offered where requests are routed; no client is asked."""
    found = read(
        f"protocol: {protocol}, tls: {{certificates: [{{secret: shop}}, {{secret: shop}}]}}"
    )
    assert found.tls == accepting.ServerTls(certificates=(SHOP,), alpn=alpn)


def test_tls_that_says_everything():
    """Lists without an order are sorted, that of suites stays."""
    found = read(
        "protocol: TLS, tls: {certificates: [{secret: b, namespace: other}, {secret: shop}],"
        " minVersion: TLS_1_0, maxVersion: TLS_1_3, cipherSuites: [Z, A],"
        " clientValidation: {caCertificates: [{secret: ca}], optional: true,"
        " subjectAltNames: [b, a], publicKeyHashes: [y, x],"
        " certificateHashes: ['0B:0c', '0a0b', 0b0c]}}"
    )
    assert found.tls == accepting.ServerTls(
        certificates=(secrets.SecretKey("other", "b"), SHOP),
        clients=accepting.ClientCertificates(
            authority=CA,
            required=False,
            subject_alt_names=("a", "b"),
            public_key_hashes=("x", "y"),
            certificate_hashes=("0a0b", "0b0c"),
        ),
        min_version="1.0",
        max_version="1.3",
        ciphers=("Z", "A"),
    )
    assert found.tls.secrets == (*found.tls.certificates, secrets.AuthorityKey(CA))


@pytest.mark.parametrize(("more", "port"), [("", 443), (", httpsPort: 8443", 8443)])
def test_redirects(more: str, port: int):
    """At the port of https, unless another is given."""
    assert read(f"protocol: HTTP, httpsRedirect: true{more}").redirect_port == port


def test_hosts_and_clients():
    """Hosts as DNS compares them, each once."""
    found = read(
        "protocol: HTTPS, http3: true, hosts: [B.c, 'a.b', b.C],"
        " clientAddress: {trustedHops: 2, proxyProtocol: true}"
    )
    assert found.hosts == ("a.b", "b.c")
    assert found.http3
    assert found.client_address == accepting.ClientAddress(trusted_hops=2, proxy_protocol=True)
