# SPDX-License-Identifier: Apache-2.0
"""The command lines of a mesh on one machine. Pure.

What is started with which flags, and how to tell that it is ready.
"""

from __future__ import annotations

import dataclasses
import enum
import pathlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pilothouse.cli.local import addresses, pods, ports
from pilothouse.config import objects

DISCOVERY_PORT, DISCOVERY_HTTP_PORT = 15010, 15014
INGRESS_PORT, INGRESS_HTTP_PORT = 15031, 15041
EGRESS_PORT, EGRESS_HTTP_PORT = 15032, 15042
STATUS_PORT, OUTBOUND_PORT, GATEWAY_PORT = 15020, 15001, 8080
INGRESS_GATEWAY, EGRESS_GATEWAY = "ingress-gateway", "egress-gateway"
_GATEWAY_LABEL = "pilothouse.dev/gateway"


class Group(enum.StrEnum):
    """What a process is for."""

    PROGRAM = "program"
    SERVICE = "service"
    GATEWAY = "gateway"
    SIDECAR = "sidecar"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A process to start."""

    name: str
    group: Group
    arguments: tuple[str, ...]
    probe: str
    """URL that answers 200 when it is ready, or ``tcp:HOST:PORT``; empty when there is nothing to
    ask."""
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
        group=Group.SERVICE,
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
    program = Command(
        name=f"{pod.name}.{pod.namespace}",
        group=Group.PROGRAM,
        arguments=(sys.executable if python else pod.command[0], *pod.command[1:]),
        environment=dict(pod.environment),
        directory=pod.directory,
        probe=f"tcp:{pod.application_address}:{pod.ports[0]}" if pod.ports else "",
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


def work_folder(home: pathlib.Path, address: str) -> pathlib.Path:
    """Where the agent at an address keeps its sockets, whose paths have some 100 bytes at most."""
    return home / address


def listens(block: addresses.Block, planned: Iterable[pods.Pod]) -> tuple[ports.Wanted, ...]:
    """Every port that the mesh listens on, as far as it is known before the mesh runs."""
    control = {
        "discovery": (DISCOVERY_PORT, DISCOVERY_HTTP_PORT),
        "ingress": (INGRESS_PORT, INGRESS_HTTP_PORT),
        "egress": (EGRESS_PORT, EGRESS_HTTP_PORT),
    }
    found = [
        ports.Wanted(block.control, port, name)
        for name, listed in control.items()
        for port in listed
    ]
    found += [
        ports.Wanted(address, port, name)
        for name, _, address in _gateways(block)
        for port in (STATUS_PORT, GATEWAY_PORT)
    ]
    return (*found, *(one for pod in planned for one in listens_for(pod)))


def listens_for(pod: pods.Pod) -> tuple[ports.Wanted, ...]:
    """Every port that one pod listens on."""
    who = f"pod {pod.namespace}/{pod.name}"
    found = [ports.Wanted(pod.application_address, port, who) for port in pod.ports]
    if pod.sidecar:
        inside = (STATUS_PORT, OUTBOUND_PORT, *pod.ports)
        found += [ports.Wanted(pod.address, port, f"the sidecar of {who}") for port in inside]
    return tuple(found)


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
    return Command(
        name=f"{role}-{name}.{namespace}",
        group=Group(role),
        arguments=(
            *(sys.executable, "-m", "pilothouse_agent"),
            *("--role", role, "--name", name, "--namespace", namespace, "--labels", labels),
            *("--ip", address, "--bind-address", address, "--status-address", status),
            *("--discovery-address", f"{place.block.control}:{DISCOVERY_PORT}"),
            *("--work-dir", str(work_folder(place.home, address))),
            *("--envoy-path", place.envoy, "--concurrency", "1"),
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
