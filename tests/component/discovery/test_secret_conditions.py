# SPDX-License-Identifier: Apache-2.0
"""Objects that name secrets say whether these are there, as files come, turn bad and go."""

from __future__ import annotations

import json
import pathlib

import pytest

from pilothouse.api.status.v1alpha1 import status_pb2
from tests.component.discovery import conftest as support
from tests.support import certificates, folders, waiting

PAIR = certificates.make("client.example")
OBJECTS = (
    "apiVersion: pilothouse.dev/v1alpha1\nkind: DestinationPolicy\nmetadata: {name: named}\n"
    "spec:\n  service: reviews\n"
    "  tls: {mode: MUTUAL, sni: reviews.example, clientCertificate: me,"
    f" caCertificates: {json.dumps(PAIR.certificate)}}}\n"
    "---\napiVersion: pilothouse.dev/v1alpha1\nkind: MeshGateway\nmetadata: {name: edge}\n"
    "spec:\n  selector: {app: edge}\n  listeners:\n"
    "  - {name: https, port: 443, protocol: HTTPS, tls: {certificates: [{secret: me}]}}\n"
)


def secret(certificate: str) -> str:
    """The secret that both name."""
    data = {"tls.crt": certificate, "tls.key": PAIR.private_key}
    return (
        "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {name: me}\n"
        f"stringData: {json.dumps(data)}\n"
    )


async def resolved(running: support.Running, name: str) -> status_pb2.Condition:
    """The condition of an object."""
    statuses = await running.statuses()
    assert name in statuses
    (found,) = [one for one in statuses[name].conditions if one.type == "ResolvedRefs"]
    return found


async def becomes(running: support.Running, reasons: dict[str, str]) -> None:
    """Wait for the reasons of some objects' conditions."""

    async def so() -> bool:
        return {name: (await resolved(running, name)).reason for name in reasons} == reasons

    await waiting.eventually(so, what=f"{reasons}")


MISSING = {"named": "InvalidClientCertificateRef", "edge": "InvalidCertificateRef"}
FOUND = dict.fromkeys(MISSING, "ResolvedRefs")


@pytest.mark.parametrize("broken", [None, "no certificate"])
async def test_a_secret_comes_and_goes(folder: pathlib.Path, broken: str | None) -> None:
    """One that cannot be read is as if it were missing, and by its name."""
    (folder / "objects.yaml").write_text(OBJECTS)
    if broken is not None:
        (folder / "secret.yaml").write_text(secret(broken))
    async with support.serving(folder) as running:
        await becomes(running, MISSING)
        for name in MISSING:
            assert "secret default/me " in (await resolved(running, name)).message
        folders.replace(folder / "secret.yaml", secret(PAIR.certificate))
        await becomes(running, FOUND)
        (folder / "secret.yaml").unlink()
        await becomes(running, MISSING)


@pytest.mark.parametrize(
    ("bundle", "reason"), [(PAIR.certificate, "ResolvedRefs"), ("", "InvalidCACertificateRef")]
)
async def test_whom_the_system_trusts(
    folder: pathlib.Path, tmp_path_factory: pytest.TempPathFactory, bundle: str, reason: str
) -> None:
    """A file that the settings name says so."""
    (folder / "objects.yaml").write_text(
        "apiVersion: pilothouse.dev/v1alpha1\nkind: DestinationPolicy\nmetadata: {name: public}\n"
        "spec: {service: reviews, tls: {sni: reviews.example, systemAuthorities: true}}\n"
    )
    path = tmp_path_factory.mktemp("system") / "bundle.pem"
    path.write_text(bundle)
    async with support.serving(folder, system_authorities=path) as running:
        await becomes(running, {"public": reason})


async def test_a_secret_that_turns_bad_is_still_there(folder: pathlib.Path) -> None:
    """It stays as it was when it was good, which proxies go on using."""
    (folder / "objects.yaml").write_text(OBJECTS)
    (folder / "secret.yaml").write_text(secret(PAIR.certificate))
    async with support.serving(folder) as running:
        await becomes(running, FOUND)
        folders.replace(folder / "secret.yaml", secret("no certificate"))
        folders.replace(folder / "rule.yaml", support.rule("v2"))

        async def read() -> bool:
            assert running.server.engine.world is not None
            state = running.server.engine.world.state
            return any(b"v2" in one.spec.SerializeToString() for one in state.configs.values())

        await waiting.eventually(read)
        await becomes(running, FOUND)
