# SPDX-License-Identifier: Apache-2.0
"""What the agent can be told: flags and PILOTHOUSE_* variables are the same settings."""

import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

import pydantic
import pydantic_settings
from pydantic import AfterValidator, Field

from pilothouse.adapters import commandline, process
from pilothouse.envoy import bootstrap
from pilothouse.model import keys, mapped, proxy, services

PROGRAM = "pilothouse-agent"

_EPILOG = """\
A flag --some-thing and a variable PILOTHOUSE_SOME_THING are the same setting; the flag wins.
Traces go where OpenTelemetry's own OTEL_* variables say; without them nowhere.

examples:
  # beside one application on this machine, discovery on the same one
  pilothouse-agent --ip 127.10.0.3 --name reviews-v1-0 --labels app=reviews,version=v1 \\
      --bind-address 127.10.0.3 --application-address 127.10.1.3
  # a gateway in Kubernetes: identity from the downward API
  PILOTHOUSE_IP=$POD_IP PILOTHOUSE_NAME=$POD_NAME PILOTHOUSE_NAMESPACE=$POD_NAMESPACE \\
      pilothouse-agent --role gateway --discovery-address discovery.pilothouse:15010 \\
      --status-address 0.0.0.0:15020

exit codes: 0 after SIGTERM or SIGINT, 1 cannot start, 2 wrong use, else the proxy's own (128+N
when signal N ended it).
"""


def _address(text: str) -> str:
    """Refuse early, in the user's words, what is no address."""
    bootstrap.parse_address(text)
    return text


def _tcp(text: str) -> str:
    if not isinstance(bootstrap.parse_address(text), bootstrap.HostPort):
        raise ValueError(f"{text!r} must be HOST:PORT")  # noqa: TRY004 - pydantic catches this one
    return text


def _ip(text: str) -> str:
    return str(ipaddress.ip_address(text))


def _label_list(text: str) -> str:
    for item in filter(None, text.split(",")):
        key, equals, _value = item.partition("=")
        if not (equals and key.strip()):
            raise ValueError(f"{item!r} is not KEY=VALUE")
    return text


def _part(text: str) -> str:
    """A part of a node id: `~` and blanks would make it unreadable."""
    if not text or "~" in text or any(each.isspace() for each in text):
        raise ValueError(f"{text!r} must be a name without blanks and '~'")
    return text


AnyAddress = Annotated[str, AfterValidator(_address)]
TcpAddress = Annotated[str, AfterValidator(_tcp)]
Ip = Annotated[str, AfterValidator(_ip)]
Part = Annotated[str, AfterValidator(_part)]


class Settings(pydantic_settings.BaseSettings):
    """Starts an Envoy, keeps it, relays its configuration from discovery, and says how it is."""

    model_config = commandline.CONFIG

    role: Literal["sidecar", "gateway"] = "sidecar"
    """What the proxy is for: beside an application, or at the edge of the mesh."""
    ip: Ip
    """The workload's own IP address; discovery finds its services by it."""
    name: Part
    """The workload's name, unique in its namespace: a pod's name, a host's."""
    namespace: Part = "default"
    """The namespace that the workload lives in."""
    domain: Part = "cluster.local"
    """The mesh's DNS domain."""
    labels: Annotated[str, AfterValidator(_label_list)] = ""
    """The workload's labels, KEY=VALUE,...; rules choose versions by them."""
    region: str = ""
    """Where the workload is, for locality-aware load balancing."""
    zone: str = ""
    """The zone inside the region."""
    sub_zone: str = ""
    """The part of the zone."""

    bind_address: Ip = proxy.DEFAULT_BIND_ADDRESS
    """The address that the proxy's listeners bind to."""
    application_address: Ip = proxy.DEFAULT_APPLICATION_ADDRESS
    """Where the application beside the proxy listens."""
    outbound_port: int = Field(default=proxy.DEFAULT_OUTBOUND_PORT, ge=1, le=65535)
    """The port of the proxy's HTTP proxy, which the application sends its requests to."""
    map: tuple[str, ...] = ()
    """A port of a service at an address of the proxy, ADDRESS:PORT=NAME.NAMESPACE:PORT, with /udp
    behind it for UDP; may be said several times, or several with commas."""

    discovery_address: AnyAddress = "127.0.0.1:15010"
    """Where discovery serves xDS: HOST:PORT or unix:PATH."""
    delta: bool = True
    """Ask discovery for changes only (delta xDS) instead of whole types."""
    initial_fetch_timeout: float = Field(default=15.0, ge=0)
    """Seconds that Envoy's start waits for its first configuration; 0 waits for ever."""

    status_address: TcpAddress = "127.0.0.1:15020"
    """Where /livez, /readyz and /metrics are served: HOST:PORT; port 0 takes a free one."""
    grpc_address: AnyAddress | None = None
    """Where gRPC health and reflection are served; default unix:WORK_DIR/agent.sock."""
    admin_address: AnyAddress | None = None
    """Where Envoy's admin page is served; default unix:WORK_DIR/admin.sock. Keep it private."""

    envoy_path: Path | None = None
    """The Envoy to run; default $PILOTHOUSE_ENVOY, then the installed package's, then PATH's."""
    concurrency: int = Field(default=1, ge=1)
    """Envoy's worker threads."""
    max_connections: int = Field(default=50_000, ge=1)
    """Connections that Envoy accepts from clients, over all listeners."""
    stats_prefixes: str = ""
    """Keep only Envoy statistics whose names begin so: PREFIX,...; empty keeps all in use."""
    tracing_flush: float | None = Field(default=None, gt=0)
    """Seconds between Envoy's sending of spans; default is Envoy's pace, 5 s or 5 spans."""
    load_reports: bool = False
    """Have Envoy tell discovery how much it asks of each service: 100 bytes a cluster, asked or
    not, every --load-report-interval of discovery's."""
    work_dir: Path | None = None
    """Folder for the bootstrap and sockets; default a temporary one, removed at the end."""
    restart: Literal["never", "on-failure"] = "never"
    """When Envoy fails: end with its exit code, or start it again, 10 times at growing distance."""
    stop_grace: float = Field(default=5.0, ge=0)
    """Seconds that Envoy has to end after SIGTERM before it is killed."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The agent's log level."""
    envoy_log_level: Literal["trace", "debug", "info", "warning", "error", "critical", "off"] = (
        "warning"
    )
    """Envoy's log level."""
    log_format: Literal["json", "console"] = "json"
    """How log lines look: JSON for machines, console for people; Envoy's follow."""

    @pydantic.field_validator("map")
    @classmethod
    def _maps(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        mapped.parse_all(value)
        return value

    @pydantic.model_validator(mode="after")
    def _admin_has_a_port(self) -> Self:
        if self.admin_address is not None:
            address = bootstrap.parse_address(self.admin_address)
            if isinstance(address, bootstrap.HostPort) and address.port == 0:
                raise ValueError("--admin-address: port 0 is not possible, name a port or a socket")
        return self

    @property
    def node_id(self) -> proxy.NodeId:
        """Who the proxy is."""
        return proxy.NodeId(
            role=proxy.Role(self.role),
            address=self.ip,
            name=self.name,
            namespace=self.namespace,
            domain=self.domain,
        )

    @property
    def label_pairs(self) -> keys.Labels:
        """The labels, read."""
        items = [item.partition("=") for item in self.labels.split(",") if item]
        return keys.labels({key.strip(): value.strip() for key, _equals, value in items})

    @property
    def mapped(self) -> tuple[mapped.MappedPort, ...]:
        """The mapped ports, read."""
        return mapped.parse_all(self.map)

    @property
    def cluster(self) -> str:
        """The service that the proxy belongs to, as traces and statistics call it."""
        return f"{dict(self.label_pairs).get('app', self.name)}.{self.namespace}"

    @property
    def locality(self) -> services.Locality:
        """Where the proxy is."""
        return services.Locality(region=self.region, zone=self.zone, sub_zone=self.sub_zone)


def read(arguments: Sequence[str]) -> Settings:
    """The settings from flags and environment.

    Raises:
        commandline.UsageError: one or more are wrong.
        SystemExit: after --help and --version.
    """
    return commandline.read(
        Settings,
        arguments,
        program=PROGRAM,
        epilog=_EPILOG,
        versions=lambda: process.version_text(PROGRAM),
    )
