# SPDX-License-Identifier: Apache-2.0
"""TLS to endpoints, in Envoy's words.

The protocol inside (ALPN) is not said: Envoy offers the one that a connection is opened for.
"""

from __future__ import annotations

from typing import Final

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.extensions.transport_sockets.tls.v3 import (
    common_pb2,
    secret_pb2,
    tls_pb2,
)
from pilothouse.envoy import alt_names, names, wire
from pilothouse.routing import upstreams

_VERSIONS: Final = {
    "1.2": common_pb2.TlsParameters.TLSv1_2,
    "1.3": common_pb2.TlsParameters.TLSv1_3,
}


def transport_socket(section: upstreams.Tls) -> base_pb2.TransportSocket:
    """The TLS socket; what secrets hold comes over SDS."""
    context = tls_pb2.UpstreamTlsContext(sni=section.sni)
    common = context.common_tls_context
    common.tls_params.tls_minimum_protocol_version = _VERSIONS[section.min_version]
    common.tls_params.tls_maximum_protocol_version = _VERSIONS[section.max_version or "1.3"]
    common.tls_params.cipher_suites.extend(section.ciphers)
    trusted = common_pb2.CertificateValidationContext(
        verify_certificate_spki=section.public_key_hashes,
        verify_certificate_hash=section.certificate_hashes,
    )
    trusted.match_typed_subject_alt_names.extend(map(alt_names.matcher, section.subject_alt_names))
    if section.ca_certificates:
        trusted.trusted_ca.inline_string = section.ca_certificates
    if section.revocation_lists:
        trusted.crl.inline_string = section.revocation_lists
        # Else a chain is refused unless each of its signers has a list.
        trusted.only_verify_leaf_cert_crl = True
    if section.authority is not None:
        both = common.combined_validation_context
        both.default_validation_context.CopyFrom(trusted)
        both.validation_context_sds_secret_config.name = names.authority(section.authority)
        both.validation_context_sds_secret_config.sds_config.CopyFrom(wire.ADS)
    elif trusted.ByteSize():
        common.validation_context.CopyFrom(trusted)
    if section.certificate is not None:
        common.tls_certificate_sds_secret_configs.append(
            secret_pb2.SdsSecretConfig(name=names.secret(section.certificate), sds_config=wire.ADS)
        )
    return base_pb2.TransportSocket(
        name="envoy.transport_sockets.tls", typed_config=wire.packed(context)
    )
