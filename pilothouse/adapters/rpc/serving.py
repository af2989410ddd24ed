# SPDX-License-Identifier: Apache-2.0
"""What every server program of ours has: a gRPC server with health and reflection, and an end.

A program that cannot start says why in one sentence (`StartError`) and exits with 1; one that gets
SIGTERM or SIGINT stops within a bounded time and exits with 0; a second signal kills it.
"""

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import grpc
import grpc.aio
import structlog
import uvloop
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

_LOG = structlog.get_logger(__name__)


class StartError(Exception):
    """The program cannot do its work as it was asked to; the message is for whoever asked."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen or to connect: `HOST:PORT`, an IPv6 host in brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `HOST:PORT`; ValueError says what is wrong with it. Port 0 means any free one."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (colon and host and port.isascii() and port.isdigit() and int(port) <= 65535):
            raise ValueError(f"address {text!r} is not of the form HOST:PORT")
        return cls(host, int(port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def cannot_listen(address: Address, *, setting: str, error: OSError) -> StartError:
    """The error to raise when `address`, which comes from `setting`, cannot be bound."""
    reason = (
        "the port is in use"
        if error.errno == errno.EADDRINUSE
        else (error.strerror or str(error)).lower()
    )
    return StartError(f"cannot listen on {address} ({setting}): {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcOptions:
    """How a gRPC server treats its connections; times are in seconds."""

    max_receive_bytes: int = 256 * 1024 * 1024
    """The first request of a delta stream names all that the client holds: tens of megabytes."""
    max_concurrent_streams: int = 100_000
    """Per connection; an agent or a relay may carry many."""
    max_waiting_calls: int = 100_000
    """Calls that have come and that the loop has not taken yet. gRPC cancels some where a thousand
    wait, and all above three thousand, without a word of why: a fleet that comes back at once would
    be turned away, though it costs no more to have it wait. `admission` is what says no."""
    max_waiting_time: float = 300.0
    """How long a call may wait so; gRPC cancels it after 30 s otherwise."""
    keepalive_time: float = 30.0
    """After so long without a frame the peer is pinged ..."""
    keepalive_timeout: float = 10.0
    """... and is gone if it does not answer within this."""
    min_ping_interval: float = 5.0
    """A client that pings more often without a call is told to go away."""
    max_connection_age: float | None = None
    """None for no limit. gRPC spreads it by +-10 %, so that clients do not come back at once."""
    max_connection_age_grace: float = 10.0
    """What streams get to end after that age: finite, or an eternal stream would know no age."""
    receive_window: int = 1024 * 1024
    """Bytes that a client may send before it hears from us. gRPC would find out by itself, with a
    ping after nearly every request: of the 217 to 278 us of CPU that writing a little to a stream
    and reading its answer cost gRPC, that was 80 to 120 (300 streams, three runs each)."""
    reuse_port: bool = False
    """True lets several processes listen on one port; it also hides that a port is taken."""

    def channel_arguments(self) -> list[tuple[str, int]]:
        """The same in gRPC's own words."""
        milliseconds = {
            "grpc.keepalive_time_ms": self.keepalive_time,
            "grpc.keepalive_timeout_ms": self.keepalive_timeout,
            "grpc.http2.min_ping_interval_without_data_ms": self.min_ping_interval,
        }
        if self.max_connection_age is not None:
            milliseconds["grpc.max_connection_age_ms"] = self.max_connection_age
            milliseconds["grpc.max_connection_age_grace_ms"] = self.max_connection_age_grace
        return [
            ("grpc.max_receive_message_length", self.max_receive_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", self.max_concurrent_streams),
            ("grpc.server.max_pending_requests", self.max_waiting_calls),
            ("grpc.server.max_pending_requests_hard_limit", self.max_waiting_calls),
            ("grpc.server_max_unrequested_time_in_server", int(self.max_waiting_time)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.bdp_probe", 0),
            ("grpc.http2.lookahead_bytes", self.receive_window),
            ("grpc.so_reuseport", int(self.reuse_port)),
            *((name, int(seconds * 1000)) for name, seconds in milliseconds.items()),
        ]


class GrpcServer:
    """A `grpc.aio.Server` with health and reflection.

    Add services to `server` and tell their names with `announce`, then `bind`, then use `running`.
    Health is NOT_SERVING until `set_ready(True)`.
    """

    def __init__(
        self,
        *,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        options: GrpcOptions = GrpcOptions(),
    ) -> None:
        self.server = grpc.aio.server(
            interceptors=list(interceptors), options=options.channel_arguments()
        )
        self._health = health.aio.HealthServicer()
        self._names: list[str] = []
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)

    def announce(self, *names: str) -> None:
        """Have health and reflection know services by their full names."""
        self._names.extend(names)

    def bind(
        self,
        address: Address,
        *,
        setting: str,
        credentials: grpc.ServerCredentials | None = None,
    ) -> int:
        """Listen on `address` once started, and return the port.

        `setting` is what the user changes to change the address. Raises StartError. Without
        credentials the port speaks plain text.
        """
        # gRPC would say "failed to bind" and nothing more, and log lines of its own to stderr.
        _try_to_bind(address, setting=setting)
        try:
            if credentials is None:
                return self.server.add_insecure_port(str(address))
            return self.server.add_secure_port(str(address), credentials)
        except RuntimeError as error:
            raise StartError(f"cannot listen on {address} ({setting}): {error}") from error

    @contextlib.asynccontextmanager
    async def running(self, *, grace: float = 5.0) -> AsyncIterator[None]:
        """Serve inside the block; then refuse new calls and give running ones `grace` seconds.

        Streams that never end by themselves are to be ended by whoever serves them, before that.
        """
        names = [
            *self._names,
            health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
            reflection.SERVICE_NAME,
        ]
        reflection.enable_server_reflection(names, self.server)
        await self.set_ready(ready=False)
        await self.server.start()
        try:
            yield
        finally:
            await self._health.enter_graceful_shutdown()
            await self.server.stop(grace)

    async def set_ready(self, *, ready: bool) -> None:
        """Tell health checkers, those that wait on a Watch included."""
        status = health_pb2.HealthCheckResponse
        for name in ["", *self._names]:
            await self._health.set(name, status.SERVING if ready else status.NOT_SERVING)


def _try_to_bind(address: Address, *, setting: str) -> None:
    """Raise StartError when `address` cannot be bound; leave nothing bound."""
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise StartError(
            f"cannot listen on {address} ({setting}): {(error.strerror or str(error)).lower()}"
        ) from error
    for family, kind, protocol, _name, where in found:
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                trial.bind(where)
                # Linux lets a second socket bind beside one that only listens with REUSEADDR set.
                trial.listen(1)
            except OSError as error:
                raise cannot_listen(address, setting=setting, error=error) from error


@contextlib.contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set; a second signal has its ordinary, deadly effect."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)

    def stop_once(received: signal.Signals) -> None:
        _LOG.info("stopping", signal=received.name)
        for each in signals:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        stop.set()

    for each in signals:
        loop.add_signal_handler(each, stop_once, each)
    try:
        yield stop
    finally:
        for each in signals:
            loop.remove_signal_handler(each)


def run_program(main: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run `main` on uvloop and return the exit code: 0, or 1 with the reason in the log.

    KeyboardInterrupt and SystemExit pass through.
    """
    # gRPC's C part logs in a format of its own; what matters of it reaches us as exceptions.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    exit_code = 0
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    except* StartError as group:
        exit_code = 1
        for error in _leaves(group):
            _LOG.error("cannot run", reason=str(error))
    except* Exception:  # noqa: BLE001 - it ends the program, told in the log's own form
        exit_code = 1
        _LOG.exception("failed")
    return exit_code


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each
