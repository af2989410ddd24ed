# SPDX-License-Identifier: Apache-2.0
"""TLS to endpoints for gRPC applications that need no proxy.

They take certificates and signers from a provider that their own bootstrap names, and refuse a
cluster that brings either, or that says more than they can check: versions, cipher suites, hashes
and revocation lists (https://github.com/grpc/proposal/blob/master/A29-xds-tls-security.md).
"""

from __future__ import annotations

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.extensions.transport_sockets.tls.v3 import tls_pb2
from pilothouse.envoy import wire
from pilothouse.routing import upstreams


def possible(section: upstreams.Tls) -> bool:
    """Tell whether such an application can connect as it should.

    Who signs is up to its provider; versions and suites are those of gRPC, TLS 1.2 or newer.
    """
    beyond = section.public_key_hashes or section.certificate_hashes or section.revocation_lists
    return bool(section.provider and not beyond)


def transport_socket(section: upstreams.Tls) -> base_pb2.TransportSocket:
    """The TLS socket of a `possible` section."""
    context = tls_pb2.UpstreamTlsContext(sni=section.sni)
    common = context.common_tls_context
    trusted = common.validation_context
    trusted.ca_certificate_provider_instance.instance_name = section.provider
    for name in section.subject_alt_names:
        # The only field for names that they read.
        trusted.match_subject_alt_names.add(exact=name)
    if section.certificate is not None:
        common.tls_certificate_provider_instance.instance_name = section.provider
    return base_pb2.TransportSocket(
        name="envoy.transport_sockets.tls", typed_config=wire.packed(context)
    )
