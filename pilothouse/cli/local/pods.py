# SPDX-License-Identifier: Apache-2.0
"""Which programs a mesh on one machine runs: from Kubernetes manifests to processes. Pure.

A pod's first container with a ``command`` is run as a process here; images are not used.
``pilothouse.dev/inject: "false"`` leaves a pod without sidecar; ``pilothouse.dev/address`` gives it
a fixed loopback address, as a program outside the mesh has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from pilothouse.cli.local import addresses
from pilothouse.model import keys

INJECT = "pilothouse.dev/inject"
ADDRESS = "pilothouse.dev/address"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One document of the user's folder."""

    location: str
    directory: str
    """Folder of its file: where the pod's command is run."""
    body: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One program to run."""

    namespace: str
    name: str
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

    def manifest(self) -> dict[str, Any]:
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
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }


def plan(
    manifests: Iterable[Manifest], block: addresses.Block
) -> tuple[tuple[Pod, ...], tuple[str, ...]]:
    """The pods of all manifests, sorted by namespace and name, and what cannot be run and why."""
    problems: list[str] = []
    templates = []
    for manifest in manifests:
        kind = manifest.body.get("kind")
        if kind in ("Deployment", "Pod"):
            templates.extend(_templates(manifest, problems))
        elif kind in ("StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicaSet"):
            problems.append(
                f"{manifest.location}: {kind} is not run here; write a Deployment or Pod"
            )
    templates.sort(key=lambda one: (one.namespace, one.name))
    pods = tuple(_pod(template, index, block) for index, template in enumerate(templates))
    return pods, tuple(sorted(problems))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Template:
    namespace: str
    name: str
    labels: keys.Labels
    annotations: Mapping[str, str]
    container: Mapping[str, Any]
    directory: str


def _templates(manifest: Manifest, problems: list[str]) -> list[_Template]:
    body = manifest.body
    metadata = _mapping(body.get("metadata"))
    name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace") or "default")
    spec = _mapping(body.get("spec"))
    where = f"{manifest.location}: {body['kind']} {namespace}/{name}"
    if body["kind"] == "Deployment":
        replicas = spec.get("replicas", 1)
        template = _mapping(spec.get("template"))
        metadata, spec = _mapping(template.get("metadata")), _mapping(template.get("spec"))
        if not isinstance(replicas, int) or replicas < 0:
            problems.append(f"{where}: spec.replicas: must be a number, 0 or greater")
            return []
        names = [f"{name}-{index}" for index in range(replicas)]
    else:
        # The manifest is in the folder too, without an address: the running pod needs a name of its
        # own.
        names = [f"{name}-local"]
    containers = [
        c for c in spec.get("containers") or () if isinstance(c, Mapping) and c.get("command")
    ]
    if not containers:
        problems.append(f"{where}: no container has a command; images cannot be run here")
        return []
    return [
        _Template(
            namespace=namespace,
            name=one,
            labels=keys.labels(
                {str(k): str(v) for k, v in _mapping(metadata.get("labels")).items()}
            ),
            annotations={str(k): str(v) for k, v in _mapping(metadata.get("annotations")).items()},
            container=containers[0],
            directory=manifest.directory,
        )
        for one in names
    ]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _pod(template: _Template, index: int, block: addresses.Block) -> Pod:
    sidecar = template.annotations.get(INJECT, "true") != "false"
    fixed = template.annotations.get(ADDRESS)
    address = fixed or block.pod(index)
    application = block.application(index) if sidecar else address
    container = template.container
    command = (*container["command"], *(container.get("args") or ()))
    return Pod(
        namespace=template.namespace,
        name=template.name,
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
        for entry in template.container.get("env") or ()
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
                for rule in _mapping(manifest.body.get("spec")).get("rules") or ()
                if isinstance(rule, Mapping) and rule.get("host")
            }
        )
    )
