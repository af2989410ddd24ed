# SPDX-License-Identifier: Apache-2.0
"""Whole plans, translated, are configurations that Envoy itself accepts."""

import pathlib

import pytest
import yaml

from pilothouse.adapters import process
from pilothouse.envoy import translate, wire
from pilothouse.model import keys, proxy, secrets
from tests.support import certificates, envoy_static, golden, meshes

PROXIES = [
    (case, name)
    for case in golden.cases("routing")
    for name in yaml.safe_load((case / "proxies.yaml").read_text(encoding="utf-8"))
]


@pytest.mark.envoy
@pytest.mark.parametrize(
    ("case", "name"), PROXIES, ids=[f"{case.name}-{name}" for case, name in PROXIES]
)
async def test_envoy_accepts(case: pathlib.Path, name: str, tmp_path: pathlib.Path):
    """Nothing that a plan says is refused, and nothing that it names is missing."""
    mesh = meshes.from_manifests((case / "input.yaml").read_text(encoding="utf-8"))
    node = yaml.safe_load((case / "proxies.yaml").read_text(encoding="utf-8"))[name]
    of = proxy.Proxy(id=proxy.NodeId.parse(node), labels=keys.labels(app=name))
    plan = meshes.planned(mesh, of)
    listed = sorted({key for layer in plan.layers for key in layer.certificates})
    held = {key: certificate(key) for key in listed}
    snapshot = translate.Translator().snapshot(plan, held)
    assert snapshot.missing_references() == ()
    config = tmp_path / "envoy.pb"
    config.write_bytes(wire.encode(envoy_static.bootstrap(snapshot, admin=tmp_path / "admin")))
    await process.validate(config, envoy=process.find_envoy())


def certificate(key: secrets.SecretKey) -> secrets.TlsSecret:
    made = certificates.make(f"{key.name}.example.com")
    return secrets.TlsSecret(
        key=key,
        certificate_chain=made.certificate.encode(),
        private_key=made.private_key.encode(),
    )
