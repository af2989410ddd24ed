# SPDX-License-Identifier: Apache-2.0
"""A real gRPC server that answers gRPC's health protocol, in clear-text HTTP/2."""

import contextlib
from collections.abc import AsyncIterator

import grpc.aio
from grpc_health.v1 import _async as health
from grpc_health.v1 import health_pb2_grpc


@contextlib.asynccontextmanager
async def server() -> AsyncIterator[tuple[health.HealthServicer, int]]:
    """What it says, and its port on 127.0.0.1, until the block ends."""
    running, servicer = grpc.aio.server(), health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, running)
    port = running.add_insecure_port("127.0.0.1:0")
    await running.start()
    try:
        yield servicer, port
    finally:
        await running.stop(grace=None)
