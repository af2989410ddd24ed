# SPDX-License-Identifier: Apache-2.0
"""Services and clients for objects with odd values, and what of these comes into force."""

from __future__ import annotations

import random

import yaml

from pilothouse.config import admission, codec, documents, objects
from pilothouse.kubernetes import services as manifests
from pilothouse.model import keys, proxy
from pilothouse.routing import plan, planner
from pilothouse_discovery import world
from tests.support import meshes, nasty

REGISTRY = """
apiVersion: v1
kind: Service
metadata: {name: svc0, namespace: default}
spec:
  selector: {app: svc0}
  clusterIP: 10.0.0.1
  ports: [{name: http, port: 80, targetPort: 9080}, {name: grpc, port: 81}, {name: tcp, port: 82}]
---
apiVersion: v1
kind: Service
metadata: {name: svc1, namespace: default}
spec: {selector: {app: svc1}, clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: svc1, namespace: team}
spec: {selector: {app: svc1}, clusterIP: "2001:db8::1", ports: [{name: http, port: 443}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default, labels: {app: svc0, version: v1}}
spec: {containers: []}
status: {podIP: 10.1.0.1}
"""


def _beside_the_pod(role: proxy.Role) -> proxy.Proxy:
    return proxy.Proxy(
        id=proxy.NodeId(role=role, address="10.1.0.1", name="p", namespace="default")
    )


SIDECAR = _beside_the_pod(proxy.Role.SIDECAR)
APPLICATION = _beside_the_pod(proxy.Role.GRPC)
GATEWAY = meshes.edge("edge.default")


def assembled(seed: int) -> world.World:
    """What is in force where objects with odd values are written; most of them are."""
    listed = nasty.objects(random.Random(seed))
    text = yaml.safe_dump_all(listed, allow_unicode=True)
    found, problems = documents.load(f"{REGISTRY}---\n{text}", location="nasty.yaml")
    assert not problems
    registry, mistakes = manifests.registry_state(found)
    assert not mistakes
    configs: dict[keys.ObjectKey, objects.Config] = {}
    for document in found:
        if document.manifest["apiVersion"] != "v1":
            config, _ = codec.from_manifest(document, source="store")
            if config is not None:
                configs[config.key] = config
    built = world.assemble(
        world.Sources(
            authored={"store": objects.StoreState(configs=configs, synced=True)},
            derived={},
            registries={"registry": registry},
        ),
        previous=admission.AcceptedSet(),
        domain="cluster.local",
    )
    assert len(built.state.configs) > len(listed) / 2
    return built


def planned(mesh: planner.Mesh, client: proxy.Proxy) -> plan.ProxyPlan:
    """What a client's configuration is made of."""
    made = mesh.plan(client)
    assert isinstance(made, plan.ProxyPlan)
    return made
