# SPDX-License-Identifier: Apache-2.0
"""What validation lets through, Envoy takes: one object must never cost its neighbours theirs.

An Envoy that refuses a response refuses all of it, so whatever it does not like must be refused
before, with the object's name, or be translated into what it likes.
"""

from __future__ import annotations

import pathlib
import tempfile

import pytest

from pilothouse.adapters import process
from pilothouse.envoy import bootstrap, translate, wire
from pilothouse.model import secrets
from pilothouse.routing import planner
from pilothouse.xds import resources
from pilothouse_discovery import world
from tests.support import certificates, envoy_static
from tests.support import nasty_worlds as worlds

pytestmark = pytest.mark.envoy


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
    for each in (worlds.SIDECAR, worlds.GATEWAY):
        planned = worlds.planned(mesh, each)
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
                node_id=worlds.SIDECAR.id,
                cluster="p.default",
                version="1",
                discovery=admin,
                admin=admin,
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
    for snapshot in _snapshots(worlds.assembled(seed)):
        assert snapshot.missing_references() == ()
        await _accepted(snapshot)
