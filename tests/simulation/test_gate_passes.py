# SPDX-License-Identifier: Apache-2.0
"""The gate has nothing against what validation lets through: objects with any odd values."""

from __future__ import annotations

import random

import pytest
import yaml

from pilothouse.config import admission, codec, documents, objects
from pilothouse.envoy import translate
from pilothouse.envoy.gate import gate
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
metadata: {name: svc1, namespace: team}
spec: {selector: {app: svc1}, clusterIP: "2001:db8::1", ports: [{name: http, port: 443}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default, labels: {app: svc0, version: v1}}
spec: {containers: []}
status: {podIP: 10.1.0.1}
"""


def node(role: proxy.Role) -> proxy.Proxy:
    return proxy.Proxy(
        id=proxy.NodeId(role=role, address="10.1.0.1", name="p", namespace="default")
    )


PROXIES = (
    node(proxy.Role.SIDECAR),
    node(proxy.Role.GRPC),
    meshes.edge("edge.default"),
)


@pytest.mark.parametrize("seed", range(8))
def test_what_validation_lets_through_passes(seed: int) -> None:
    """For sidecars, gateways and gRPC applications; and every reference leads somewhere."""
    listed = yaml.safe_dump_all(nasty.objects(random.Random(seed)), allow_unicode=True)
    found, problems = documents.load(f"{REGISTRY}---\n{listed}", location="nasty.yaml")
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
            secrets={},
        ),
        previous=admission.AcceptedSet(),
        domain="cluster.local",
    )
    mesh, looked = planner.Planner().update(built.state), gate.Gate()
    for one in PROXIES:
        planned = mesh.plan(one)
        assert isinstance(planned, plan.ProxyPlan)
        snapshot = translate.Translator().snapshot(planned, {})
        report = looked.report(snapshot, grpc=one.id.role is proxy.Role.GRPC)
        assert [str(fault) for fault in report.all] == []
