# SPDX-License-Identifier: Apache-2.0
"""Reads MeshGateways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from pilothouse.api.config.v1alpha1 import mesh_gateway_pb2
from pilothouse.config import mesh_gateways as checked
from pilothouse.config import objects
from pilothouse.model import keys, secrets
from pilothouse.routing import accepting, parsed, readers

_Listener = mesh_gateway_pb2.Listener
_Tls = mesh_gateway_pb2.ListenerTls

_PROTOCOLS: Mapping[int, parsed.ListenerProtocol] = {
    _Listener.PROTOCOL_HTTP: "http",
    _Listener.PROTOCOL_HTTPS: "https",
    _Listener.PROTOCOL_TLS: "tls",
    _Listener.PROTOCOL_TCP: "tcp",
    _Listener.PROTOCOL_UDP: "udp",
}
_VERSIONS: Mapping[int, accepting.TlsVersion] = {
    _Tls.VERSION_TLS_1_0: "1.0",
    _Tls.VERSION_TLS_1_1: "1.1",
    _Tls.VERSION_TLS_1_2: "1.2",
    _Tls.VERSION_TLS_1_3: "1.3",
}
_HTTPS_PORT = 443
_ALPN = ("h2", "http/1.1")


def gateway(config: objects.Config) -> parsed.Gateway:
    """Read a MeshGateway."""
    spec = cast("mesh_gateway_pb2.MeshGatewaySpec", config.spec)
    namespace = config.key.namespace
    allowed = _namespaces(spec.allowed_namespaces) or (namespace,)
    written = spec.listeners
    return parsed.Gateway(
        key=config.key,
        origins=readers.origins(config.meta),
        created=config.meta.created,
        selector=keys.labels(dict(spec.selector)),
        listeners=tuple(_listener(one, namespace=namespace, allowed=allowed) for one in written),
    )


def _namespaces(written: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(written)))


def _listener(
    written: mesh_gateway_pb2.Listener, *, namespace: str, allowed: tuple[str, ...]
) -> parsed.GatewayListener:
    protocol = _PROTOCOLS[written.protocol]
    decrypts = protocol in ("https", "tls") and written.tls.mode != _Tls.MODE_PASSTHROUGH
    https_port = written.https_port if written.HasField("https_port") else _HTTPS_PORT
    return parsed.GatewayListener(
        name=written.name,
        port=written.port,
        protocol=protocol,
        hosts=tuple(sorted(readers.hosts(written.hosts))) or ("*",),
        tls=_tls(written.tls, namespace=namespace, http=protocol == "https") if decrypts else None,
        redirect_port=https_port if written.https_redirect else None,
        http3=written.http3,
        client_address=accepting.ClientAddress(
            trusted_hops=written.client_address.trusted_hops,
            proxy_protocol=written.client_address.proxy_protocol,
        ),
        address=checked.bind_address(written),
        allowed=_namespaces(written.allowed_namespaces) or allowed,
    )


def _tls(
    written: mesh_gateway_pb2.ListenerTls,
    *,
    namespace: str,
    http: bool,
) -> accepting.ServerTls:
    return accepting.ServerTls(
        certificates=tuple(
            dict.fromkeys(_secret(one, namespace=namespace) for one in written.certificates)
        ),
        clients=_clients(written, namespace=namespace),
        min_version=_VERSIONS.get(written.min_version, "1.2"),
        max_version=_VERSIONS.get(written.max_version),
        ciphers=tuple(written.cipher_suites),
        alpn=_ALPN if http else (),
    )


def _clients(
    written: mesh_gateway_pb2.ListenerTls, *, namespace: str
) -> accepting.ClientCertificates | None:
    if not written.HasField("client_validation"):
        return None
    section = written.client_validation
    return accepting.ClientCertificates(
        authority=_secret(section.ca_certificates[0], namespace=namespace),
        required=not section.optional,
        subject_alt_names=tuple(sorted(section.subject_alt_names)),
        public_key_hashes=tuple(sorted(section.public_key_hashes)),
        certificate_hashes=readers.certificate_hashes(section.certificate_hashes),
    )


def _secret(written: mesh_gateway_pb2.SecretReference, *, namespace: str) -> secrets.SecretKey:
    return secrets.SecretKey(written.namespace or namespace, written.secret)
