# SPDX-License-Identifier: Apache-2.0
"""Names that certificates are for."""

from __future__ import annotations

import ipaddress

from pilothouse.api.envoy.extensions.transport_sockets.tls.v3 import common_pb2

_AltName = common_pb2.SubjectAltNameMatcher


def matcher(name: str) -> common_pb2.SubjectAltNameMatcher:
    """A certificate that is for this name: a URI, an IP address, or else a DNS name."""
    made = _AltName(san_type=_kind(name))
    made.matcher.exact = name
    return made


def _kind(name: str) -> common_pb2.SubjectAltNameMatcher.SanType.ValueType:
    if "://" in name:
        return _AltName.URI
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return _AltName.DNS
    return _AltName.IP_ADDRESS
