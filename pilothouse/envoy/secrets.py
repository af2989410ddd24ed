# SPDX-License-Identifier: Apache-2.0
"""Certificates for SDS, and what signs those of others.

What comes out may hold a private key: it is sent, never printed.
"""

from __future__ import annotations

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2
from pilothouse.envoy import names, wire
from pilothouse.model import secrets
from pilothouse.xds import resources, types


def certificate(secret: secrets.TlsSecret) -> resources.Resource:
    """The certificate chain and its key, under the secret's name."""
    return _resource(
        secret_pb2.Secret(
            name=names.secret(secret.key),
            tls_certificate=common_pb2.TlsCertificate(
                certificate_chain=base_pb2.DataSource(inline_bytes=secret.certificate_chain),
                private_key=base_pb2.DataSource(inline_bytes=secret.private_key),
            ),
        )
    )


def authority(secret: secrets.TlsSecret) -> resources.Resource:
    """What signs the certificates of others; without the secret's own key."""
    trusted = common_pb2.CertificateValidationContext(
        trusted_ca=base_pb2.DataSource(inline_bytes=secret.authorities)
    )
    if secret.revocations:
        trusted.crl.inline_bytes = secret.revocations
        # Else a chain is refused unless each of its signers has a list.
        trusted.only_verify_leaf_cert_crl = True
    return _resource(
        secret_pb2.Secret(name=names.authority(secret.key), validation_context=trusted)
    )


def _resource(made: secret_pb2.Secret) -> resources.Resource:
    return resources.Resource.of(types.SECRET.type_url, made.name, wire.encode(made))
