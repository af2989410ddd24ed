# SPDX-License-Identifier: Apache-2.0
"""Delta clients that behave as an Envoy does: all clusters, the endpoints of each, an ACK for each
response.

Each has a connection of its own. Bytes are handed through; a response is parsed for its type, nonce
and names only.
"""

from __future__ import annotations

import asyncio
import time

import grpc

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import types

_METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
_CHANNEL = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
)


class DeltaClient:
    """One stream on one connection."""

    def __init__(self, address: str, node_id: str) -> None:
        """Nothing is opened before ``run``."""
        self._channel = grpc.aio.insecure_channel(address, options=_CHANNEL)
        self._node = base_pb2.Node(id=node_id)
        self.subscribed = asyncio.Event()
        """Set once endpoints of all clusters have been received."""
        self.received_bytes = 0
        self.changed = 0
        """Endpoint responses after the first."""
        self.acked_at = 0.0
        """When the newest response was acknowledged, by ``time.perf_counter``."""

    async def run(self) -> None:
        """Open the stream and acknowledge everything, until cancelled."""
        try:
            call: grpc.aio.StreamStreamCall[bytes, bytes]
            call = self._channel.stream_stream(_METHOD)()
            await call.write(
                discovery_pb2.DeltaDiscoveryRequest(
                    node=self._node, type_url=types.CLUSTER.type_url
                ).SerializeToString()
            )
            while isinstance(raw := await call.read(), bytes):
                self.received_bytes += len(raw)
                await self._answer(call, discovery_pb2.DeltaDiscoveryResponse.FromString(raw))
        finally:
            await self._channel.close()

    async def _answer(
        self,
        call: grpc.aio.StreamStreamCall[bytes, bytes],
        response: discovery_pb2.DeltaDiscoveryResponse,
    ) -> None:
        ack = discovery_pb2.DeltaDiscoveryRequest(
            type_url=response.type_url, response_nonce=response.nonce
        )
        await call.write(ack.SerializeToString())
        if response.type_url == types.CLUSTER.type_url:
            wanted = discovery_pb2.DeltaDiscoveryRequest(
                type_url=types.ENDPOINT.type_url,
                resource_names_subscribe=[resource.name for resource in response.resources],
            )
            await call.write(wanted.SerializeToString())
        elif self.subscribed.is_set():
            self.changed += 1
            self.acked_at = time.perf_counter()
        else:
            self.subscribed.set()
