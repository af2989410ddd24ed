# SPDX-License-Identifier: Apache-2.0
"""Which programs a mesh on one machine runs: from Kubernetes manifests to processes. Pure.

A pod's first container with a ``command`` is run as a process here; images are not used.
``pilothouse.dev/inject: "false"`` leaves a pod without sidecar; ``pilothouse.dev/address`` gives it
a fixed loopback address, as a program outside the mesh has.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from pilothouse.cli.local import addresses
from pilothouse.model import keys

INJECT = "pilothouse.dev/inject"
ADDRESS = "pilothouse.dev/address"
MAX_REPLICAS = 100
"""More of one program than a machine is for."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One document of the user's folder."""

    location: str
    directory: str
    """Folder of its file: where the pod's command is run."""
    body: Mapping[str, Any]

    @property
    def name(self) -> tuple[str, str]:
        """Namespace and name of its object."""
        metadata = _mapping(self.body.get("metadata"))
        return str(metadata.get("namespace") or "default"), str(metadata.get("name") or "")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One program to run."""

    namespace: str
    name: str
    index: int
    """Its place in the block of addresses."""
    labels: keys.Labels
    address: str
    """What the mesh knows it by: its sidecar's address, or its own when it has no sidecar."""
    application_address: str
    """Where the program listens."""
    sidecar: bool
    command: tuple[str, ...]
    directory: str
    environment: keys.Labels
    container: Mapping[str, Any]
    """The container as the manifest has it."""

    @property
    def id(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def ports(self) -> tuple[int, ...]:
        """Where its container says that it listens."""
        listed = (_mapping(port).get("containerPort") for port in _list(self.container, "ports"))
        return tuple(port for port in listed if isinstance(port, int) and 0 < port < 65536)

    def manifest(self, *, ready: bool = True) -> dict[str, Any]:
        """The pod as Kubernetes would show it once it runs."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": dict(self.labels),
            },
            "spec": {"containers": [dict(self.container)]},
            "status": {
                "phase": "Running",
                "podIP": self.address,
                "podIPs": [{"ip": self.address}],
                "conditions": [{"type": "Ready", "status": str(ready)}],
            },
        }


def plan(
    manifests: Iterable[Manifest],
    block: addresses.Block,
    *,
    before: Iterable[Pod] = (),
) -> tuple[tuple[Pod, ...], tuple[str, ...]]:
    """The pods of all manifests, sorted by namespace and name, and what cannot be run and why.

    Args:
        manifests: of the whole folder; of two that name the same object, the first counts.
        block: where their addresses are from.
        before: pods that run already; those that stay keep their addresses.
    """
    problems: list[str] = []
    templates: dict[tuple[str, str], _Template] = {}
    seen: set[tuple[str, ...]] = set()
    for manifest in manifests:
        kind = manifest.body.get("kind")
        if kind in ("Deployment", "Pod"):
            key = (str(kind), *manifest.name)
            if key not in seen:  # a second one is a problem that discovery tells
                templates.update({one.id: one for one in _templates(manifest, problems)})
            seen.add(key)
        elif kind in ("StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicaSet"):
            problems.append(
                f"{manifest.location}: {kind} is not run here; write a Deployment or Pod"
            )
    kept = {pod.id: pod.index for pod in before if pod.id in templates}
    free = (index for index in itertools.count() if index not in set(kept.values()))
    pods = tuple(
        _pod(templates[one], kept[one] if one in kept else next(free), block)
        for one in sorted(templates)
    )
    return pods, tuple(sorted(problems))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Template:
    namespace: str
    name: str
    labels: keys.Labels
    annotations: Mapping[str, str]
    container: Mapping[str, Any]
    directory: str

    @property
    def id(self) -> tuple[str, str]:
        return self.namespace, self.name


def _templates(manifest: Manifest, problems: list[str]) -> list[_Template]:
    body = manifest.body
    metadata = _mapping(body.get("metadata"))
    namespace, name = manifest.name
    spec = _mapping(body.get("spec"))
    where = f"{manifest.location}: {body['kind']} {namespace}/{name}"
    if body["kind"] == "Deployment":
        replicas = spec.get("replicas", 1)
        template = _mapping(spec.get("template"))
        metadata, spec = _mapping(template.get("metadata")), _mapping(template.get("spec"))
        if not isinstance(replicas, int) or not 0 <= replicas <= MAX_REPLICAS:
            problems.append(f"{where}: spec.replicas: must be a number from 0 to {MAX_REPLICAS}")
            return []
        names = [f"{name}-{index}" for index in range(replicas)]
    else:
        # The manifest is in the folder too, without an address: the running pod needs a name of its
        # own.
        names = [f"{name}-local"]
    if not name:
        problems.append(f"{manifest.location}: {body['kind']}: metadata.name: is missing")
        return []
    containers = [_mapping(one) for one in _list(spec, "containers")]
    containers = [one for one in containers if _list(one, "command")]
    if not containers:
        problems.append(f"{where}: no container has a command; images cannot be run here")
        return []
    annotations = {str(k): str(v) for k, v in _mapping(metadata.get("annotations")).items()}
    if not _is_loopback(annotations.get(ADDRESS, "127.0.0.1")):
        problems.append(f"{where}: {ADDRESS}: must be an address 127.x.y.z")
        return []
    return [
        _Template(
            namespace=namespace,
            name=one,
            labels=keys.labels(
                {str(k): str(v) for k, v in _mapping(metadata.get("labels")).items()}
            ),
            annotations=annotations,
            container=containers[0],
            directory=manifest.directory,
        )
        for one in names
    ]


def _is_loopback(text: str) -> bool:
    try:
        return ipaddress.IPv4Address(text).is_loopback
    except ValueError:
        return False


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(body: Mapping[str, Any], field: str) -> list[Any]:
    value = body.get(field)
    return value if isinstance(value, list) else []


def _pod(template: _Template, index: int, block: addresses.Block) -> Pod:
    sidecar = template.annotations.get(INJECT, "true") != "false"
    fixed = template.annotations.get(ADDRESS)
    address = fixed or block.pod(index)
    application = block.application(index) if sidecar else address
    container = template.container
    command = (*container["command"], *_list(container, "args"))
    return Pod(
        namespace=template.namespace,
        name=template.name,
        index=index,
        labels=template.labels,
        address=address,
        application_address=application,
        sidecar=sidecar,
        command=tuple(str(word) for word in command),
        directory=template.directory,
        environment=_environment(
            template, address=address, application=application, sidecar=sidecar
        ),
        container=container,
    )


def _environment(
    template: _Template, *, address: str, application: str, sidecar: bool
) -> keys.Labels:
    given = {
        str(entry["name"]): str(entry.get("value", ""))
        for entry in _list(template.container, "env")
        if isinstance(entry, Mapping) and "name" in entry
    }
    known = {
        "POD_NAME": template.name,
        "POD_NAMESPACE": template.namespace,
        "POD_IP": address,
        "BIND_ADDRESS": application,
    }
    if sidecar:
        known["HTTP_PROXY"] = known["http_proxy"] = f"http://{address}:15001"
    return keys.labels({**known, **given})


def hosts(manifests: Iterable[Manifest]) -> tuple[str, ...]:
    """The host names that Ingresses name, sorted."""
    return tuple(
        sorted(
            {
                str(rule["host"])
                for manifest in manifests
                if manifest.body.get("kind") == "Ingress"
                for rule in _list(_mapping(manifest.body.get("spec")), "rules")
                if isinstance(rule, Mapping) and rule.get("host")
            }
        )
    )
