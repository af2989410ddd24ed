# SPDX-License-Identifier: Apache-2.0
"""The composition root: makes the parts, runs them, and ends with the right exit code.

Cancellation is how things stop; what was opened closes in reverse order, whatever happened.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog
import uvloop

from pilothouse import buildinfo
from pilothouse.adapters import commandline, process, telemetry
from pilothouse.envoy import bootstrap
from pilothouse_agent import (
    admin,
    metrics,
    observation,
    proxy_runner,
    readiness,
    relay,
    settings,
    status,
    work_folder,
)
from pilothouse_agent.errors import AgentError

_LOG = structlog.get_logger(__name__)
_SERVICE = "pilothouse-agent"


def main(arguments: Sequence[str]) -> int:
    """The program without its name: read settings, run, give the exit code."""
    try:
        chosen = settings.read(arguments)
    except commandline.UsageError as error:
        sys.stderr.write(f"{settings.PROGRAM}: {error}\n")
        return 2
    telemetry.configure_logging(_SERVICE, chosen.log_level, format=chosen.log_format)
    structlog.contextvars.bind_contextvars(node=str(chosen.node_id))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(_run(chosen))
        except* (
            AgentError,
            process.EnvoyNotFoundError,
            process.BootstrapInvalidError,
        ) as group:
            for reason in group.exceptions:
                _LOG.error("cannot run", reason=str(reason))
    return 1


async def _run(chosen: settings.Settings) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Before anything slow: process 1 has no default handlers, it would ignore SIGTERM.
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tracing = telemetry.tracer_provider(_SERVICE, buildinfo.version())
    try:
        async with contextlib.AsyncExitStack() as stack:
            return await _serve(chosen, stack, stop, tracing)
    finally:
        await tracing.shutdown()


async def _serve(
    chosen: settings.Settings,
    stack: contextlib.AsyncExitStack,
    stop: asyncio.Event,
    tracing: telemetry.Telemetry,
) -> int:
    envoy = process.find_envoy(chosen.envoy_path)
    version = await process.envoy_version(envoy)
    folder = stack.enter_context(work_folder.opened(chosen.work_dir))
    parameters = _parameters(chosen, folder)
    status.require_free(parameters.admin, setting="--admin-address")
    path = folder / "bootstrap.json"
    work_folder.write(path, bootstrap.to_json(bootstrap.build(parameters)))
    with tracing.span("envoy.validate"):
        await process.validate(path, envoy=envoy)

    observer = observation.Observer()
    upstream = bootstrap.parse_address(chosen.discovery_address)
    relaying = relay.Relay(
        listen=work_folder.socket_in(folder, "xds.sock"), upstream=upstream, observer=observer
    )
    await stack.enter_async_context(relaying.serving())
    page = await stack.enter_async_context(admin.admin(parameters.admin))
    ready = readiness.Readiness(
        observer=observer, relay=relaying, envoy=page, address=chosen.discovery_address
    )
    runner = proxy_runner.ProxyRunner(
        _command(envoy, path, chosen),
        observer=observer,
        tracing=tracing,
        restart=chosen.restart == "on-failure",
        grace=chosen.stop_grace,
    )
    build = {"version": buildinfo.version(), "commit": buildinfo.commit(), "envoy": version}
    parts = metrics.Parts(
        observer=observer, relay=relaying, readiness=ready, runner=runner, build=build
    )
    _LOG.info("starting", **build, path=str(envoy), work_dir=str(folder))
    http = bootstrap.parse_address(chosen.status_address)
    assert isinstance(http, bootstrap.HostPort)  # noqa: S101 - settings see to it
    await stack.enter_async_context(
        status.serving_http(http, readiness=ready, registry=metrics.registry(parts))
    )
    health = status.GrpcHealth()
    grpc_address = (
        bootstrap.parse_address(chosen.grpc_address)
        if chosen.grpc_address
        else work_folder.socket_in(folder, "agent.sock")
    )
    await stack.enter_async_context(health.serving(grpc_address, tracing))
    return await _supervise(runner, relaying, ready, health, stop)


async def _supervise(
    runner: proxy_runner.ProxyRunner,
    relaying: relay.Relay,
    ready: readiness.Readiness,
    health: status.GrpcHealth,
    stop: asyncio.Event,
) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGUSR1, signal.SIGHUP):  # Envoy reopens its logs on USR1
        loop.add_signal_handler(number, runner.send, number)
    async with asyncio.TaskGroup() as group:
        background = [
            group.create_task(relaying.watch(), name="watch discovery"),
            group.create_task(ready.watch(health.set), name="watch readiness"),
        ]
        code = await runner.run(stop, stopping=ready.stop)
        for task in background:
            task.cancel()
    return code


def _parameters(chosen: settings.Settings, folder: Path) -> bootstrap.BootstrapParameters:
    return bootstrap.BootstrapParameters(
        node_id=chosen.node_id,
        cluster=chosen.cluster,
        version=buildinfo.version(),
        discovery=work_folder.socket_in(folder, "xds.sock"),
        admin=(
            bootstrap.parse_address(chosen.admin_address)
            if chosen.admin_address
            else work_folder.socket_in(folder, "admin.sock")
        ),
        labels=chosen.label_pairs,
        locality=chosen.locality,
        bind_address=chosen.bind_address,
        application_address=chosen.application_address,
        outbound_port=chosen.outbound_port,
        mapped=chosen.mapped,
        delta=chosen.delta,
        initial_fetch_timeout=chosen.initial_fetch_timeout,
        stats_prefixes=tuple(filter(None, chosen.stats_prefixes.split(","))),
        max_connections=chosen.max_connections,
        tracing_flush=chosen.tracing_flush,
        load_reports=chosen.load_reports,
        log_json=chosen.log_format == "json",
    )


def _command(envoy: Path, path: Path, chosen: settings.Settings) -> tuple[str, ...]:
    return (
        str(envoy),
        "-c",
        str(path),
        # A new configuration comes over xDS, a new bootstrap is a new process.
        "--disable-hot-restart",
        "--concurrency",
        str(chosen.concurrency),
        "-l",
        chosen.envoy_log_level,
    )
