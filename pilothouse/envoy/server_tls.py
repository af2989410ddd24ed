# SPDX-License-Identifier: Apache-2.0
"""TLS that a listener terminates, in Envoy's words."""

from __future__ import annotations

from typing import Final

from google.protobuf import duration_pb2

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.extensions.transport_sockets.tls.v3 import (
    common_pb2,
    secret_pb2,
    tls_pb2,
)
from pilothouse.envoy import alt_names, names, wire
from pilothouse.routing import accepting

HANDSHAKE_TIMEOUT: Final = duration_pb2.Duration(seconds=15)
_VERSIONS: Final = {
    "1.0": common_pb2.TlsParameters.TLSv1_0,
    "1.1": common_pb2.TlsParameters.TLSv1_1,
    "1.2": common_pb2.TlsParameters.TLSv1_2,
    "1.3": common_pb2.TlsParameters.TLSv1_3,
}


_MODERN: Final = (
    "[ECDHE-ECDSA-AES128-GCM-SHA256|ECDHE-ECDSA-CHACHA20-POLY1305]",
    "[ECDHE-RSA-AES128-GCM-SHA256|ECDHE-RSA-CHACHA20-POLY1305]",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
)
_OLD: Final = (
    *_MODERN,
    *("ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA", "AES128-SHA"),
    *("ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA", "AES256-SHA"),
)
"""Envoy's own, and those that versions before 1.2 have: of its own they can use none."""


def _suites(tls: accepting.ServerTls) -> tuple[str, ...]:
    if tls.ciphers or tls.min_version not in ("1.0", "1.1"):
        return tls.ciphers
    return _OLD


def context(tls: accepting.ServerTls) -> tls_pb2.DownstreamTlsContext:
    """What a client is asked and offered; Envoy picks the certificate by SNI, else the first."""
    made = tls_pb2.DownstreamTlsContext(
        common_tls_context=tls_pb2.CommonTlsContext(
            tls_params=common_pb2.TlsParameters(
                tls_minimum_protocol_version=_VERSIONS[tls.min_version],
                cipher_suites=_suites(tls),
            ),
            alpn_protocols=tls.alpn,
            tls_certificate_sds_secret_configs=[
                secret_pb2.SdsSecretConfig(name=names.secret(key), sds_config=wire.ADS)
                for key in tls.certificates
            ],
        )
    )
    if tls.max_version is not None:
        made.common_tls_context.tls_params.tls_maximum_protocol_version = _VERSIONS[tls.max_version]
    if tls.clients is not None:
        made.require_client_certificate.value = tls.clients.required
        made.common_tls_context.combined_validation_context.CopyFrom(_clients(tls.clients))
    return made


def _clients(
    clients: accepting.ClientCertificates,
) -> tls_pb2.CommonTlsContext.CombinedCertificateValidationContext:
    """Who signs the certificates of clients comes over SDS; what is on them besides stands here."""
    made = tls_pb2.CommonTlsContext.CombinedCertificateValidationContext(
        default_validation_context=common_pb2.CertificateValidationContext(
            match_typed_subject_alt_names=map(alt_names.matcher, clients.subject_alt_names),
            verify_certificate_spki=clients.public_key_hashes,
            verify_certificate_hash=clients.certificate_hashes,
        ),
        validation_context_sds_secret_config=secret_pb2.SdsSecretConfig(
            name=names.authority(clients.authority), sds_config=wire.ADS
        ),
    )
    made.default_validation_context.SetInParent()  # Envoy wants it, if only empty
    return made


def transport_socket(tls: accepting.ServerTls) -> base_pb2.TransportSocket:
    """The socket of a chain that terminates TLS."""
    return base_pb2.TransportSocket(
        name="envoy.transport_sockets.tls", typed_config=wire.packed(context(tls))
    )
