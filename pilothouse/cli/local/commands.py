# SPDX-License-Identifier: Apache-2.0
"""The command lines of a mesh on one machine. Pure.

What is started with which flags, and how to tell that it is ready.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from pilothouse.cli.local import addresses, pods
from pilothouse.config import objects

DISCOVERY_PORT, DISCOVERY_HTTP_PORT = 15010, 15014
INGRESS_PORT, INGRESS_HTTP_PORT = 15031, 15041
EGRESS_PORT, EGRESS_HTTP_PORT = 15032, 15042
STATUS_PORT, OUTBOUND_PORT, GATEWAY_PORT = 15020, 15001, 8080
SERVICES = ("discovery", "ingress", "egress")
INGRESS_GATEWAY, EGRESS_GATEWAY = "ingress-gateway", "egress-gateway"
_GATEWAY_LABEL = "pilothouse.dev/gateway"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A process to start."""

    name: str
    arguments: tuple[str, ...]
    probe: str
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    directory: str | None = None


class _Place(NamedTuple):
    """What all agents of a mesh have in common."""

    block: addresses.Block
    home: pathlib.Path
    envoy: str


def control_plane(block: addresses.Block, config: pathlib.Path) -> tuple[Command, ...]:
    """Discovery, ingress and egress."""
    host = block.control
    discovery = f"{host}:{DISCOVERY_PORT}"
    return (
        _service(
            "discovery",
            host,
            DISCOVERY_HTTP_PORT,
            *("--config", str(config), "--grpc-address", discovery),
            *(
                "--source",
                f"ingress={host}:{INGRESS_PORT}",
                "--source",
                f"egress={host}:{EGRESS_PORT}",
            ),
        ),
        _service(
            "ingress",
            host,
            INGRESS_HTTP_PORT,
            *(
                "--config",
                str(config),
                "--grpc-address",
                f"{host}:{INGRESS_PORT}",
                "--discovery-address",
                discovery,
            ),
        ),
        _service(
            "egress",
            host,
            EGRESS_HTTP_PORT,
            *("--grpc-address", f"{host}:{EGRESS_PORT}", "--discovery-address", discovery),
        ),
    )


def _service(name: str, host: str, http_port: int, *flags: str) -> Command:
    http = f"{host}:{http_port}"
    return Command(
        name=name,
        arguments=(sys.executable, "-m", f"pilothouse_{name}", "--http-address", http, *flags),
        probe=f"http://{http}/readyz",
    )


def gateways(block: addresses.Block, home: pathlib.Path, envoy: str) -> tuple[Command, ...]:
    """The agents of the ingress and the egress gateway."""
    return tuple(
        _agent(
            name=name,
            namespace=objects.ROOT_NAMESPACE,
            role="gateway",
            address=address,
            labels=f"{_GATEWAY_LABEL}={role}",
            place=_Place(block, home, envoy),
        )
        for name, role, address in _gateways(block)
    )


def _gateways(block: addresses.Block) -> tuple[tuple[str, str, str], ...]:
    return (INGRESS_GATEWAY, "ingress", block.ingress), (EGRESS_GATEWAY, "egress", block.egress)


def workload(
    pod: pods.Pod, block: addresses.Block, home: pathlib.Path, envoy: str
) -> tuple[Command, ...]:
    """The program of a pod, and the agent beside it."""
    python = pod.command[0] in ("python", "python3")
    ports = [port.get("containerPort") for port in pod.container.get("ports") or ()]
    program = Command(
        name=f"{pod.name}.{pod.namespace}",
        arguments=(sys.executable if python else pod.command[0], *pod.command[1:]),
        environment=dict(pod.environment),
        directory=pod.directory,
        probe=f"tcp:{pod.application_address}:{ports[0]}" if ports else "",
    )
    if not pod.sidecar:
        return (program,)
    sidecar = _agent(
        name=pod.name,
        namespace=pod.namespace,
        role="sidecar",
        address=pod.address,
        labels=",".join(f"{key}={value}" for key, value in pod.labels),
        place=_Place(block, home, envoy),
        more=(
            "--application-address",
            pod.application_address,
            "--outbound-port",
            str(OUTBOUND_PORT),
        ),
    )
    return program, sidecar


def _agent(
    *,
    name: str,
    namespace: str,
    role: str,
    address: str,
    labels: str,
    place: _Place,
    more: tuple[str, ...] = (),
) -> Command:
    status = f"{address}:{STATUS_PORT}"
    work = place.home / name
    return Command(
        name=f"{role}-{name}.{namespace}",
        arguments=(
            *(sys.executable, "-m", "pilothouse_agent"),
            *("--role", role, "--name", name, "--namespace", namespace, "--labels", labels),
            *("--ip", address, "--bind-address", address, "--status-address", status),
            *("--discovery-address", f"{place.block.control}:{DISCOVERY_PORT}"),
            *("--work-dir", str(work), "--envoy-path", place.envoy, "--concurrency", "1"),
            *more,
        ),
        probe=f"http://{status}/readyz",
    )


def gateway_manifests(block: addresses.Block) -> list[dict[str, Any]]:
    """What Kubernetes would say of the gateways: their pods, and the egress gateway's Service."""
    namespace = objects.ROOT_NAMESPACE
    running = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": {_GATEWAY_LABEL: role}},
            "spec": {
                "containers": [
                    {"name": "proxy", "ports": [{"name": "http", "containerPort": GATEWAY_PORT}]}
                ]
            },
            "status": {
                "phase": "Running",
                "podIP": address,
                "podIPs": [{"ip": address}],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        for name, role, address in _gateways(block)
    ]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": EGRESS_GATEWAY, "namespace": namespace},
        "spec": {
            "selector": {_GATEWAY_LABEL: "egress"},
            "ports": [{"name": "http", "port": GATEWAY_PORT, "targetPort": GATEWAY_PORT}],
        },
    }
    return [*running, service]
