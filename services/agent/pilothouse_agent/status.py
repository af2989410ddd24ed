# SPDX-License-Identifier: Apache-2.0
"""What others may ask the agent: health over HTTP and over gRPC, and metrics."""

import contextlib
import socket
from collections.abc import AsyncIterator

import grpc.aio
import prometheus_client
import structlog
from aiohttp import web
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from pilothouse.adapters import telemetry
from pilothouse.envoy import bootstrap
from pilothouse_agent.errors import AgentError
from pilothouse_agent.readiness import Readiness

_LOG = structlog.get_logger(__name__)


@contextlib.asynccontextmanager
async def serving_http(
    address: bootstrap.HostPort,
    *,
    readiness: Readiness,
    registry: prometheus_client.CollectorRegistry,
) -> AsyncIterator[bootstrap.HostPort]:
    """Serve /livez, /readyz and /metrics; gives the address with the port that was taken."""

    async def livez(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        report = await readiness.report()
        return web.json_response(report, status=200 if report["ready"] else 503)

    async def metrics(_request: web.Request) -> web.Response:
        body = prometheus_client.generate_latest(registry)
        return web.Response(
            body=body, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST}
        )

    application = web.Application()
    application.add_routes(
        [web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", metrics)]
    )
    runner = web.AppRunner(application, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        site = web.TCPSite(runner, address.host, address.port, shutdown_timeout=1.0)
        try:
            await site.start()
        except OSError as error:
            raise AgentError(f"--status-address: {address}: {error.strerror or error}") from error
        host, port = runner.addresses[0][:2]
        taken = bootstrap.HostPort(host, port)
        _LOG.info("status page", address=str(taken))
        yield taken
    finally:
        await runner.cleanup()


class GrpcHealth:
    """The standard gRPC health service, saying what readiness says."""

    def __init__(self) -> None:
        self._servicer = health.aio.HealthServicer()

    async def set(self, *, ready: bool) -> None:
        """Tell everybody who watches."""
        answers = health_pb2.HealthCheckResponse
        await self._servicer.set("", answers.SERVING if ready else answers.NOT_SERVING)

    @contextlib.asynccontextmanager
    async def serving(
        self, address: bootstrap.Address, tracing: telemetry.Telemetry
    ) -> AsyncIterator[None]:
        """Serve health and reflection for as long as the block runs."""
        server = grpc.aio.server(interceptors=telemetry.server_interceptors(tracing))
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)
        names = (health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        # grpcio shares ports (SO_REUSEPORT) and takes over sockets: ask before.
        require_free(address, setting="--grpc-address")
        try:
            server.add_insecure_port(str(address))
        except RuntimeError as error:
            raise AgentError(f"--grpc-address: {address}: cannot be listened on") from error
        await self.set(ready=False)
        await server.start()
        try:
            yield
        finally:
            await server.stop(grace=None)


def require_free(address: bootstrap.Address, *, setting: str) -> None:
    """AgentError naming `setting` when somebody else listens at `address`."""
    if isinstance(address, bootstrap.UnixSocket):
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(address.path) == 0:
                raise AgentError(f"{setting}: {address}: address in use")
        return
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as probe:
        # As servers do, so that connections in their last minute do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            raise AgentError(f"{setting}: {address}: {error.strerror or error}") from error
