# SPDX-License-Identifier: Apache-2.0
"""What ingress can be told: flags and ``PILOTHOUSE_*`` variables are the same settings."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Annotated, Literal

import pydantic
import pydantic_settings

from pilothouse.adapters import commandline, process
from pilothouse.adapters.rpc import serving
from pilothouse.config import objects
from pilothouse.kubernetes import ingress, ingress_classes
from pilothouse.model import proxy, secrets

PROGRAM = "pilothouse-ingress"
_EPILOG = """\
A flag --some-thing and a variable PILOTHOUSE_SOME_THING are the same setting; the flag wins.
Traces go where OpenTelemetry's own OTEL_* variables say; without them nowhere.

example: beside a discovery that was started with --source ingress=127.0.0.1:15031
  pilothouse-ingress --config ./samples/shop --discovery-address 127.0.0.1:15010

exit codes: 0 after SIGTERM or SIGINT, 1 cannot start or failed, 2 wrong use.
"""

Port = Annotated[int, pydantic.Field(ge=1, le=65535)]


def _address(text: str) -> str:
    serving.Address.parse(text)
    return text


def _secret(text: str) -> str:
    namespace, _, name = text.partition("/")
    if text and not (namespace and name and "/" not in name):
        raise ValueError(f"{text!r} is not of the form NAMESPACE/NAME")
    return text


Address = Annotated[str, pydantic.AfterValidator(_address)]


class Settings(pydantic_settings.BaseSettings):
    """Pilothouse ingress: turns Kubernetes Ingresses into gateways and routes.

    It reads Ingress, IngressClass, Service and Secret manifests from a folder, gives what it
    derives from them to discovery as a config stream, and tells when each Ingress is programmed. It
    may be started before or after discovery.
    """

    model_config = commandline.CONFIG

    config: pathlib.Path = pathlib.Path("/etc/pilothouse")
    """Folder of Kubernetes manifests (Ingress, IngressClass, Service, Secret); watched."""
    discovery_address: Address = "127.0.0.1:15010"
    """HOST:PORT of discovery's gRPC server, which tells what became of the Ingresses."""
    grpc_address: Address = "127.0.0.1:15031"
    """HOST:PORT of the gRPC server that discovery reads from."""
    http_address: Address = "127.0.0.1:15041"
    """HOST:PORT of /livez, /readyz, /metrics and /debug."""
    http_port: Port = 8080
    """Port that the gateway's proxies listen on for plain HTTP."""
    https_port: Port = 8443
    """Port that they listen on for HTTPS, once there is a certificate."""
    redirect_port: Port = 443
    """Port of HTTPS as clients see it: where plain requests for hosts with TLS are sent."""
    ingress_controller: str = ingress_classes.DEFAULT_RULES.controller
    """IngressClasses with this spec.controller are served."""
    ingress_class: str = ingress_classes.DEFAULT_RULES.class_name
    """An Ingress may name this class by annotation even where no such IngressClass exists."""
    prefer_class_field: bool = False
    """Where annotation and field name two classes, let the field count, as ingress-nginx does."""
    take_classless: bool = False
    """Serve Ingresses that name no class, whatever the default class is."""
    default_certificate: Annotated[str, pydantic.AfterValidator(_secret)] = ""
    """NAMESPACE/NAME of the TLS secret for clients whose SNI no certificate fits."""
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
                name="ingress",
                namespace=objects.ROOT_NAMESPACE,
                domain=self.domain,
            )
        )

    @property
    def conversion(self) -> ingress.Settings:
        """What the conversion of Ingresses is told."""
        namespace, _, name = self.default_certificate.partition("/")
        return ingress.Settings(
            classes=ingress_classes.Rules(
                controller=self.ingress_controller,
                class_name=self.ingress_class,
                prefer_field=self.prefer_class_field,
                take_classless=self.take_classless,
            ),
            http_port=self.http_port,
            https_port=self.https_port,
            redirect_port=self.redirect_port,
            default_certificate=secrets.SecretKey(namespace, name) if name else None,
        )


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
