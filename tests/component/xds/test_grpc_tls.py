# SPDX-License-Identifier: Apache-2.0
"""TLS of a real gRPC client without a proxy, by a policy: certificates are from its bootstrap.

Source: https://github.com/grpc/proposal/blob/master/A29-xds-tls-security.md
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import grpc
import pytest

from pilothouse.xds import types
from tests.support import certificates, fleet, grpc_application, waiting

TARGET = "xds:///app:80"
SERVER, CLIENT = certificates.make("app.test"), certificates.make("client.test")
HASH = "a" * 64


def _tls(*, mode: str = "SIMPLE", **more: object) -> str:
    """A policy's section."""
    section: dict[str, object] = {
        "mode": mode,
        "sni": "app.test",
        "caCertificates": SERVER.certificate,
    }
    if mode == "MUTUAL":
        section["clientCertificate"] = "client"
    return "tls: " + json.dumps({**section, **more})


def _provider(folder: Path, *, trusted: certificates.Pair = SERVER) -> Mapping[str, str]:
    """The files of an application's own certificate, and of whom it trusts."""
    contents = {
        "certificate_file": CLIENT.certificate,
        "private_key_file": CLIENT.private_key,
        "ca_certificate_file": trusted.certificate,
    }
    for name, content in contents.items():
        (folder / name).write_text(content)
    return {name: str(folder / name) for name in contents}


@contextlib.asynccontextmanager
async def _mesh(*, policy: str, mutual: bool) -> AsyncIterator[fleet.Fleet]:
    """Discovery, an application with TLS under this policy, and one in plain text."""
    credentials = grpc.ssl_server_credentials(
        [(SERVER.private_key.encode(), SERVER.certificate.encode())],
        root_certificates=CLIENT.certificate.encode() if mutual else None,
        require_client_auth=mutual,
    )
    async with contextlib.AsyncExitStack() as stack:
        secured = await stack.enter_async_context(
            grpc_application.backend("secured", credentials=credentials)
        )
        plain = await stack.enter_async_context(grpc_application.backend("plain"))
        made = await stack.enter_async_context(
            fleet.fleet(
                {
                    "app.yaml": fleet.join(fleet.service("app"), fleet.pod("app", "v1", secured)),
                    "plain.yaml": fleet.join(
                        fleet.service("plain"), fleet.pod("plain", "v1", plain)
                    ),
                    "policy.yaml": fleet.policy("app", policy),
                }
            )
        )
        await made.start()
        yield made


def _nothing_was_refused(made: fleet.Fleet) -> None:
    proxies = made.discovery.clients.proxies
    assert proxies
    assert [client.refusals for client in proxies if client.refusals] == []


def _is_closed(made: fleet.Fleet) -> bool:
    """Whether the application is told to call nobody."""
    found = [
        told.references
        for client in made.discovery.clients.proxies
        if (target := client.session.stream.target) is not None
        and (told := target.get(types.CLUSTER.type_url, "outbound|80||app.default")) is not None
    ]
    assert found
    return all((types.ENDPOINT.type_url, "unresolved") in one for one in found)


async def _answer(client: grpc_application.Application, target: str = TARGET) -> str:
    """Who answers, or the status of the failure."""
    outcome = await client.call(target)
    return next(iter(outcome.replies), "") or outcome.failures[0].partition(":")[0]


async def _calls_nobody(client: grpc_application.Application, made: fleet.Fleet) -> None:
    """Wait until the application is told so; it has no reply before, during and after.

    Until then a call may fail for another reason: nothing was read yet, or not soon enough.
    """
    before: list[str] = []

    async def told() -> bool:
        before.append(await _answer(client))
        return _is_closed(made)

    await waiting.eventually(told, what="the cluster is closed")
    assert set(before) <= {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
    assert await _answer(client) == "UNAVAILABLE"


@pytest.mark.parametrize("mode", ["SIMPLE", "MUTUAL"])
async def test_a_policy_s_tls_is_spoken_with_the_provider_s_certificates(
    tmp_path: Path, mode: str
) -> None:
    """The client shows its own where the policy says so, and the server asks for it."""
    async with (
        _mesh(policy=_tls(mode=mode), mutual=mode == "MUTUAL") as made,
        grpc_application.application(made.grpc, tmp_path, provider=_provider(tmp_path)) as client,
    ):
        assert await _answer(client) == "secured"
        assert await _answer(client, "xds:///plain:80") == "plain"
        _nothing_was_refused(made)


async def test_the_endpoint_s_name_must_be_right(tmp_path: Path) -> None:
    """That of the policy, whatever was dialled."""
    async with (
        _mesh(policy=_tls(subjectAltNames=["other.test"]), mutual=False) as made,
        grpc_application.application(made.grpc, tmp_path, provider=_provider(tmp_path)) as client,
    ):
        assert await _answer(client) == "UNAVAILABLE"
        await made.apply({"policy.yaml": fleet.policy("app", _tls())}, wait=False)

        async def right() -> bool:
            return await _answer(client) == "secured"

        await waiting.eventually(right)


async def test_the_signer_must_be_one_of_the_provider_s(tmp_path: Path) -> None:
    """For whom the application trusts is for its own operator to say."""
    provider = _provider(tmp_path, trusted=certificates.make("stranger.test"))
    async with (
        _mesh(policy=_tls(), mutual=False) as made,
        grpc_application.application(made.grpc, tmp_path, provider=provider) as client,
    ):
        assert await _answer(client) == "UNAVAILABLE"


async def test_without_a_provider_nobody_is_called(tmp_path: Path) -> None:
    """Not in plain text: the call fails. Services without TLS are reached as ever."""
    async with (
        _mesh(policy=_tls(), mutual=False) as made,
        grpc_application.application(made.grpc, tmp_path) as client,
    ):
        await _calls_nobody(client, made)
        assert await _answer(client, "xds:///plain:80") == "plain"
        _nothing_was_refused(made)


async def test_what_grpc_cannot_check_is_not_called(tmp_path: Path) -> None:
    """A certificate that is told by its hash."""
    async with (
        _mesh(policy=_tls(certificateHashes=[HASH]), mutual=False) as made,
        grpc_application.application(made.grpc, tmp_path, provider=_provider(tmp_path)) as client,
    ):
        await _calls_nobody(client, made)
        _nothing_was_refused(made)
