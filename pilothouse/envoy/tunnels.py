# SPDX-License-Identifier: Apache-2.0
"""Connections through HTTP proxies, in Envoy's words.

The socket asks for a tunnel (CONNECT) and begins TLS inside; which proxy to ask is told with each
endpoint.
"""

from __future__ import annotations

from typing import Final

from pilothouse.api.envoy.config.core.v3 import address_pb2, base_pb2
from pilothouse.api.envoy.config.endpoint.v3 import endpoint_components_pb2
from pilothouse.api.envoy.extensions.transport_sockets.http_11_proxy.v3 import (
    upstream_http_11_connect_pb2,
)
from pilothouse.envoy import wire

_METADATA: Final = "envoy.http11_proxy_transport_socket.proxy_address"


def transport_socket(inner: base_pb2.TransportSocket) -> base_pb2.TransportSocket:
    """The socket that asks for a tunnel first.

    Args:
        inner: The socket for what goes through the tunnel, which must be TLS: in clear text Envoy
            would ask the proxy as if it were the endpoint.
    """
    made = upstream_http_11_connect_pb2.Http11ProxyUpstreamTransport(transport_socket=inner)
    return base_pb2.TransportSocket(
        name="envoy.transport_sockets.http_11_proxy", typed_config=wire.packed(made)
    )


def fill(entry: endpoint_components_pb2.LocalityLbEndpoints, proxy: tuple[str, int]) -> None:
    """Tell the endpoints of a locality through which proxy they are reached: address and port."""
    address = address_pb2.Address()
    address.socket_address.address, address.socket_address.port_value = proxy
    told = wire.packed(address)
    for one in entry.lb_endpoints:
        one.metadata.typed_filter_metadata[_METADATA].CopyFrom(told)
