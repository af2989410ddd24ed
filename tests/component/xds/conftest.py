# SPDX-License-Identifier: Apache-2.0
"""A target of the conformance harness, and a client of it."""

from collections.abc import AsyncIterator

import grpc.aio
import pytest

from tests.support import xds_adapter, xds_calls, xds_server

NODE = "test-id"


class Setup:
    """The target, what sets it, and a client on one stream or on several."""

    def __init__(self, channel: grpc.aio.Channel, target: xds_adapter.Target) -> None:
        self.channel = channel
        self.target = target
        self.adapter = xds_adapter.Adapter(channel, NODE)
        self.clients: list[xds_calls.Client] = []
        self.refusals: list[str] = []
        """What the client refuses in this test."""

    def sotw(self, *, aggregated: bool) -> xds_calls.SotwClient:
        """The only client, for state of the world."""
        client = xds_calls.SotwClient(
            self.channel, node=NODE, aggregated=aggregated, heard=self.target.heard
        )
        self.clients.append(client)
        return client

    def delta(self, *, aggregated: bool) -> xds_calls.DeltaClient:
        """The only client, for delta."""
        client = xds_calls.DeltaClient(
            self.channel, node=NODE, aggregated=aggregated, heard=self.target.heard
        )
        self.clients.append(client)
        return client


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    """Afterwards: nothing more was said, and never was there a response without a request."""
    target = xds_adapter.Target()
    async with (
        xds_server.serving_xds(target, add=target.add_to) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        made = Setup(channel, target)
        try:
            yield made
            for client in made.clients:
                assert await client.finish() == []
                assert client.requests > len(client.replies)
            assert target.refused == made.refusals
        finally:
            for client in made.clients:
                client.close()
