# SPDX-License-Identifier: Apache-2.0
"""What discovery can be told: flags and ``PILOTHOUSE_*`` variables are the same settings."""

from __future__ import annotations

import ipaddress
import pathlib
from collections.abc import Sequence
from typing import Annotated, Literal

import pydantic
import pydantic_settings

from pilothouse.adapters import commandline, process
from pilothouse.adapters.rpc import serving

PROGRAM = "pilothouse-discovery"
_EPILOG = """\
A flag --some-thing and a variable PILOTHOUSE_SOME_THING are the same setting; the flag wins.
Traces go where OpenTelemetry's own OTEL_* variables say; without them nowhere.

example:
  pilothouse-discovery --config ./samples/shop \\
      --source ingress=127.0.0.1:15031 --source egress=127.0.0.1:15032

exit codes: 0 after SIGTERM or SIGINT, 1 cannot start or failed, 2 wrong use.
"""


def _address(text: str) -> str:
    serving.Address.parse(text)
    return text


Address = Annotated[str, pydantic.AfterValidator(_address)]


class Settings(pydantic_settings.BaseSettings):
    """Pilothouse discovery: computes the configuration of every proxy and streams it to them.

    It reads services and config objects from a folder, takes derived config from the ingress and
    egress services, and serves Envoys (xDS, state of the world and delta), those services, and the
    `pilothouse` command.
    """

    model_config = commandline.CONFIG

    config: pathlib.Path = pathlib.Path("/etc/pilothouse")
    """Folder of Kubernetes manifests (Service, EndpointSlice, Pod, Secret) and config objects;
    watched."""
    grpc_address: Address = "127.0.0.1:15010"
    """HOST:PORT of the plain-text gRPC server; the host must be a loopback address, for nothing
    here is encrypted."""
    http_address: Address = "127.0.0.1:15014"
    """HOST:PORT of /livez, /readyz, /metrics and /debug."""
    source: tuple[str, ...] = ()
    """A config source, NAME=HOST:PORT; give one for each of ingress and egress. Proxies that need a
    source wait for it."""
    system_authorities: pathlib.Path | None = None
    """File of the certificates (PEM) that policies mean by systemAuthorities; read at the start.
    Without it the system's own, wherever it has them."""
    domain: str = "cluster.local"
    """DNS domain of the mesh: the last part of a service's full name."""
    workers: int = pydantic.Field(default=1, ge=1, le=64)
    """Processes that serve streams, on one port. With 1 the process that builds serves them too;
    with more it serves none, and each worker has its share of the proxies."""
    sync_grace: float = pydantic.Field(default=10.0, ge=0)
    """Seconds that a proxy is kept waiting for sources that have not synced, before it is told
    UNAVAILABLE."""
    write_timeout: float = pydantic.Field(default=30.0, gt=0)
    """Seconds that a stalled client may take to read one response before its stream is ended."""
    max_new_streams_per_second: float = pydantic.Field(default=0, ge=0)
    """Streams that may begin in a second in each process that serves them; the rest wait for a
    second at most, and are refused with RESOURCE_EXHAUSTED after it. 0 for any number."""
    max_connection_age: float = pydantic.Field(default=1800, ge=0)
    """Seconds after which a connection ends, give or take a tenth, so that proxies spread over
    replicas; they come back at once. 0 for never."""
    max_connection_age_grace: float = pydantic.Field(default=10, gt=0)
    """Seconds that the calls of such a connection get to end by themselves."""
    keepalive_time: float = pydantic.Field(default=30, ge=1)
    """Seconds without a word after which a client is pinged."""
    keepalive_timeout: float = pydantic.Field(default=10, gt=0)
    """Seconds after which a client is gone that does not answer a ping."""
    min_ping_interval: float = pydantic.Field(default=5, ge=0)
    """Seconds that a client must leave between its own pings; one that pings more often is told to
    go away."""
    max_request_mebibytes: int = pydantic.Field(default=256, ge=4, le=2047)
    """Size of a request; the first of a delta stream lists all that the proxy holds."""
    load_report_interval: float = pydantic.Field(default=30.0, ge=1)
    """Seconds between two reports of a client that tells how much it asks of each service."""
    shutdown_grace: float = pydantic.Field(default=5.0, ge=0)
    """Seconds that calls under way get when the service stops."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """How much is logged."""
    log_format: Literal["json", "console"] = "json"
    """How log lines look: JSON for machines, console for people."""

    @pydantic.field_validator("grpc_address")
    @classmethod
    def _loopback(cls, value: str) -> str:
        """Plain text never leaves the machine: it carries keys of certificates."""
        host = serving.Address.parse(value).host
        if host != "localhost" and not _is_loopback(host):
            msg = f"{value!r}: the plain-text server must listen on a loopback address"
            raise ValueError(msg)
        return value

    @pydantic.field_validator("source")
    @classmethod
    def _name_and_address(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = [entry.partition("=")[0] for entry in value]
        for entry in value:
            name, equals, address = entry.partition("=")
            if not (name and equals and address.rpartition(":")[2].isdigit()):
                msg = f"{entry!r} must be NAME=HOST:PORT"
                raise ValueError(msg)
        if len(set(names)) != len(names):
            msg = f"a source is named twice in {', '.join(value)}"
            raise ValueError(msg)
        return value

    @property
    def sources(self) -> dict[str, str]:
        """Name to HOST:PORT, in the order given."""
        return {
            name: address for name, _, address in (entry.partition("=") for entry in self.source)
        }


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read(arguments: Sequence[str]) -> Settings:
    """The settings from flags and environment.

    Raises:
        commandline.UsageError: one or more are wrong.
    """
    return commandline.read(
        Settings,
        arguments,
        program=PROGRAM,
        epilog=_EPILOG,
        versions=lambda: process.version_text(PROGRAM),
    )
