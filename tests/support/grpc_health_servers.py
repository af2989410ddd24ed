# SPDX-License-Identifier: Apache-2.0
"""A real gRPC server that answers gRPC's health protocol."""

import contextlib
from collections.abc import AsyncIterator

import grpc.aio
from grpc_health.v1 import _async as health
from grpc_health.v1 import health_pb2_grpc

from tests.support import certificates


@contextlib.asynccontextmanager
async def server(
    tls: certificates.Pair | None = None,
) -> AsyncIterator[tuple[health.HealthServicer, int]]:
    """What it says, and its port on 127.0.0.1, until the block ends; in clear text unless told."""
    running, servicer = grpc.aio.server(), health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, running)
    if tls is None:
        port = running.add_insecure_port("127.0.0.1:0")
    else:
        pair = (tls.private_key.encode(), tls.certificate.encode())
        port = running.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await running.start()
    try:
        yield servicer, port
    finally:
        await running.stop(grace=None)
