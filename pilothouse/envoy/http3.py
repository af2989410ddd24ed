# SPDX-License-Identifier: Apache-2.0
"""HTTP/3: the listener of QUIC, and how the one of TCP tells of it."""

from __future__ import annotations

from typing import Final

from google.protobuf import wrappers_pb2

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.config.listener.v3 import listener_pb2
from pilothouse.api.envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,
)
from pilothouse.api.envoy.extensions.transport_sockets.quic.v3 import quic_transport_pb2
from pilothouse.envoy import server_tls, wire
from pilothouse.routing import accepting

_Manager = http_connection_manager_pb2.HttpConnectionManager
_DAY_IN_SECONDS: Final = 86_400


def announced(port: int) -> http_connection_manager_pb2.HttpFilter:
    """The filter that tells clients, in each answer, that HTTP/3 is spoken at a port of UDP."""
    made = header_mutation_pb2.HeaderMutation()
    told = made.mutations.response_mutations.add().append
    told.header.key = "alt-svc"
    told.header.value = f'h3=":{port}"; ma={_DAY_IN_SECONDS}'
    told.append_action = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    return http_connection_manager_pb2.HttpFilter(
        name="envoy.filters.http.header_mutation", typed_config=wire.packed(made)
    )


def listen(made: listener_pb2.Listener) -> None:
    """Have a listener of UDP speak QUIC."""
    made.udp_listener_config.quic_options.SetInParent()


def speak(made: http_connection_manager_pb2.HttpConnectionManager) -> None:
    """Have a connection manager speak HTTP/3 alone."""
    made.codec_type = _Manager.HTTP3
    made.http3_protocol_options.SetInParent()


def transport_socket(tls: accepting.ServerTls) -> base_pb2.TransportSocket:
    """The socket of QUIC; nothing is taken before the handshake, since it could be replayed."""
    config = quic_transport_pb2.QuicDownstreamTransport(
        downstream_tls_context=server_tls.context(tls),
        enable_early_data=wrappers_pb2.BoolValue(value=False),
    )
    return base_pb2.TransportSocket(
        name="envoy.transport_sockets.quic", typed_config=wire.packed(config)
    )
