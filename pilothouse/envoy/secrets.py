# SPDX-License-Identifier: Apache-2.0
"""Certificates for SDS. What comes out holds a private key: it is sent, never printed."""

from __future__ import annotations

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2
from pilothouse.envoy import names, wire
from pilothouse.model import secrets
from pilothouse.xds import resources, types


def message(secret: secrets.TlsSecret) -> secret_pb2.Secret:
    """The certificate chain and its key, under the secret's name."""
    return secret_pb2.Secret(
        name=names.secret(secret.key),
        tls_certificate=common_pb2.TlsCertificate(
            certificate_chain=base_pb2.DataSource(inline_bytes=secret.certificate_chain),
            private_key=base_pb2.DataSource(inline_bytes=secret.private_key),
        ),
    )


def resource(secret: secrets.TlsSecret) -> resources.Resource:
    """The certificate as a resource for SDS."""
    return resources.Resource.of(
        types.SECRET.type_url, names.secret(secret.key), wire.encode(message(secret))
    )
