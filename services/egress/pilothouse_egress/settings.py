# SPDX-License-Identifier: Apache-2.0
"""What egress can be told: flags and ``PILOTHOUSE_*`` variables are the same settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import pydantic
import pydantic_settings

from pilothouse.adapters import commandline, process
from pilothouse.adapters.rpc import serving
from pilothouse.config import objects
from pilothouse.model import proxy
from pilothouse_egress import derive

PROGRAM = "pilothouse-egress"
_EPILOG = """\
A flag --some-thing and a variable PILOTHOUSE_SOME_THING are the same setting; the flag wins.
Traces go where OpenTelemetry's own OTEL_* variables say; without them nowhere.

example: beside a discovery that was started with --source egress=127.0.0.1:15032
  pilothouse-egress --discovery-address 127.0.0.1:15010

exit codes: 0 after SIGTERM or SIGINT, 1 cannot start or failed, 2 wrong use.
"""


def _address(text: str) -> str:
    serving.Address.parse(text)
    return text


Address = Annotated[str, pydantic.AfterValidator(_address)]


class Settings(pydantic_settings.BaseSettings):
    """Pilothouse egress: has the egress gateway carry traffic to external services.

    It reads the ExternalService objects from discovery, derives a gateway and its routes from those
    that say `throughEgressGateway`, and gives them back to discovery as a config stream. It may be
    started before or after discovery, and keeps what it has while discovery is away.
    """

    model_config = commandline.CONFIG

    discovery_address: Address = "127.0.0.1:15010"
    """HOST:PORT of discovery's gRPC server."""
    grpc_address: Address = "127.0.0.1:15032"
    """HOST:PORT of the gRPC server that discovery reads from."""
    http_address: Address = "127.0.0.1:15042"
    """HOST:PORT of /livez, /readyz, /metrics and /debug."""
    gateway_service: str = "egress-gateway"
    """Name of the Service, in namespace pilothouse-system, of the egress gateway's proxies."""
    gateway_port: int = pydantic.Field(default=8080, ge=1, le=65535)
    """Port that the egress gateway listens on, which is also the port of its Service."""
    domain: str = "cluster.local"
    """DNS domain of the mesh: the last part of a service's full name."""
    shutdown_grace: float = pydantic.Field(default=5.0, ge=0)
    """Seconds that calls under way get when the service stops."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """How much is logged."""
    log_format: Literal["json", "console"] = "json"
    """How log lines look: JSON for machines, console for people."""

    @property
    def node_id(self) -> str:
        """Who it is to discovery."""
        return str(
            proxy.NodeId(
                role=proxy.Role.SOURCE,
                address=serving.Address.parse(self.grpc_address).host,
                name="egress",
                namespace=objects.ROOT_NAMESPACE,
                domain=self.domain,
            )
        )

    @property
    def gateway(self) -> derive.Gateway:
        """The gateway to derive for."""
        return derive.Gateway(service=self.gateway_service, port=self.gateway_port)


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
