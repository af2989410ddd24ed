# SPDX-License-Identifier: Apache-2.0
"""What validation lets through, Envoy takes: one object must never cost its neighbours theirs.

An Envoy that refuses a response refuses all of it, so whatever it does not like must be refused
before, with the object's name, or be translated into what it likes.
"""

from __future__ import annotations

import pathlib
import random
import tempfile

import pytest
import yaml

from pilothouse.adapters import process
from pilothouse.config import admission, codec, documents, objects
from pilothouse.envoy import bootstrap, translate, wire
from pilothouse.kubernetes import services as manifests
from pilothouse.model import keys, proxy, secrets
from pilothouse.routing import plan, planner
from pilothouse.xds import resources
from pilothouse_discovery import world
from tests.support import certificates, envoy_static, meshes, nasty

pytestmark = pytest.mark.envoy

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
_NODE = proxy.NodeId(role=proxy.Role.SIDECAR, address="10.1.0.1", name="p", namespace="default")
_PROXIES = (
    proxy.Proxy(id=_NODE),
    meshes.edge("edge.default"),
)


def _world(text: str) -> world.World:
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
    return world.assemble(
        world.Sources(
            authored={"store": objects.StoreState(configs=configs, synced=True)},
            derived={},
            registries={"registry": registry},
        ),
        previous=admission.AcceptedSet(),
        domain="cluster.local",
    )


def _secret(key: secrets.SecretKey) -> secrets.TlsSecret:
    made = certificates.make("a.example")
    return secrets.TlsSecret(
        key=key,
        certificate_chain=made.certificate.encode(),
        private_key=made.private_key.encode(),
        authorities=made.certificate.encode(),
    )


def _snapshots(whole: world.World) -> list[resources.Snapshot]:
    mesh = planner.Planner().update(whole.state)
    made = []
    for each in _PROXIES:
        planned = mesh.plan(each)
        assert isinstance(planned, plan.ProxyPlan)
        wanted = {
            key for layer in planned.layers for key in (*layer.certificates, *layer.authorities)
        }
        held = {key: _secret(key) for key in sorted(wanted) if key.name != "missing"}
        made.append(translate.Translator().snapshot(planned, held))
    return made


async def _accepted(snapshot: resources.Snapshot) -> None:
    """Have Envoy look at it, under the limits that our own bootstrap sets."""
    with tempfile.TemporaryDirectory(prefix="nasty-") as name:
        folder = pathlib.Path(name)
        admin = bootstrap.UnixSocket(str(folder / "admin"))
        ours = bootstrap.build(
            bootstrap.BootstrapParameters(
                node_id=_NODE, cluster="p.default", version="1", discovery=admin, admin=admin
            )
        )
        whole = envoy_static.bootstrap(snapshot, admin=folder / "admin")
        whole.layered_runtime.CopyFrom(ours.layered_runtime)
        path = folder / "envoy.pb"
        path.write_bytes(wire.encode(whole))
        await process.validate(path, envoy=process.find_envoy())


@pytest.mark.parametrize("seed", range(5))
async def test_what_validation_lets_through_envoy_takes(seed: int) -> None:
    """Any objects with any odd values together: nothing of what is in force is refused."""
    listed = nasty.objects(random.Random(seed))
    whole = _world(yaml.safe_dump_all(listed, allow_unicode=True))
    assert len(whole.state.configs) > len(listed) / 2
    for snapshot in _snapshots(whole):
        assert snapshot.missing_references() == ()
        await _accepted(snapshot)
