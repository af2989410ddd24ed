# SPDX-License-Identifier: Apache-2.0
"""Envoy's client status service, asked over real gRPC while clients are connected."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from pilothouse.api.envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from pilothouse.api.envoy.service.status.v3 import csds_pb2
from pilothouse.xds import types
from tests.component.discovery import conftest as support
from tests.support import certificates, waiting

NODE = "sidecar~10.0.0.9~client-1.default~cluster.local"
OTHER = "sidecar~10.0.0.8~other-1.default~cluster.local"
V1 = "outbound|9080|version=v1|reviews.default"
SERVICE = "/envoy.service.status.v3.ClientStatusDiscoveryService/"
Request, Response = csds_pb2.ClientStatusRequest, csds_pb2.ClientStatusResponse


@contextlib.asynccontextmanager
async def _channel(running: support.Running) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(running.address) as channel:
        yield channel


async def _fetch(channel: grpc.aio.Channel, request: Request) -> Response:
    call = channel.unary_unary(
        f"{SERVICE}FetchClientStatus",
        request_serializer=Request.SerializeToString,
        response_deserializer=Response.FromString,
    )
    return await call(request)


def _about(prefix: str, **more: bool) -> Request:
    return Request(node_matchers=[{"node_id": {"prefix": prefix}}], **more)


def _found(response: Response, kind: types.ResourceType) -> dict[str, csds_pb2.ClientConfig]:
    (config,) = response.config
    return {one.name: one for one in config.generic_xds_configs if one.type_url == kind.type_url}


async def test_p63_each_resource_has_a_version_and_a_state(folder: pathlib.Path) -> None:
    """Not answered, then accepted; with what the client holds inside."""
    async with (
        support.serving(folder) as running,
        support.connected(running.address, NODE) as proxy,
        _channel(running) as channel,
    ):
        proxy.withhold.add(types.LISTENER.type_url)
        await waiting.eventually(lambda: V1 in proxy.names(types.CLUSTER))
        await waiting.eventually(lambda: proxy._withheld)

        async def synced() -> bool:
            clusters = _found(await _fetch(channel, _about(NODE)), types.CLUSTER)
            return clusters[V1].config_status == csds_pb2.SYNCED

        await waiting.eventually(synced)
        response = await _fetch(channel, _about(NODE))
        clusters = _found(response, types.CLUSTER)
        assert set(clusters) == proxy.names(types.CLUSTER)
        held = proxy.resources[types.CLUSTER.type_url]
        assert {name: one.xds_config.value for name, one in clusters.items()} == held
        assert all(one.version_info for one in clusters.values())
        listeners = _found(response, types.LISTENER)
        assert {one.config_status for one in listeners.values()} == {csds_pb2.STALE}


async def test_p63_a_refusal_is_told_in_the_client_s_words(folder: pathlib.Path) -> None:
    """Beside what it goes on holding."""
    async with (
        support.serving(folder) as running,
        support.connected(running.address, NODE) as proxy,
        _channel(running) as channel,
    ):
        proxy.refuse = lambda url: "no such port" if url == types.LISTENER.type_url else ""

        async def refused() -> bool:
            response = await _fetch(channel, _about(NODE, exclude_resource_contents=True))
            listeners = _found(response, types.LISTENER)
            assert {one.config_status for one in listeners.values()} == {csds_pb2.ERROR}
            assert {one.error_state.details for one in listeners.values()} == {"no such port"}
            assert not any(one.HasField("xds_config") for one in listeners.values())
            return True

        await waiting.eventually(refused)


async def test_p63_matchers_choose_clients_and_a_stream_answers_each_request(
    folder: pathlib.Path,
) -> None:
    """One by its id, all without a matcher, none if none fits."""
    async with (
        support.serving(folder) as running,
        support.connected(running.address, NODE) as proxy,
        support.connected(running.address, OTHER) as other,
        _channel(running) as channel,
    ):
        for one in (proxy, other):
            await waiting.eventually(lambda one=one: one.names(types.CLUSTER))
        call = channel.stream_stream(
            f"{SERVICE}StreamClientStatus",
            request_serializer=Request.SerializeToString,
            response_deserializer=Response.FromString,
        )()
        seen = []
        for request in (_about(NODE), Request(), _about("gateway~")):
            await call.write(request)
            response = await call.read()
            assert isinstance(response, Response)
            seen.append([config.node.id for config in response.config])
        assert seen == [[NODE], [OTHER, NODE], []]
        call.cancel()


async def test_a_matcher_that_is_not_understood_is_refused(folder: pathlib.Path) -> None:
    """Rather than match too much."""
    regex = Request(node_matchers=[{"node_id": {"safe_regex": {"regex": ".*"}}}])
    async with (
        support.serving(folder) as running,
        support.connected(running.address, NODE) as proxy,
        _channel(running) as channel,
    ):
        await waiting.eventually(lambda: proxy.names(types.CLUSTER))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _fetch(channel, regex)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "safe_regex" in str(caught.value.details())


async def test_p63_no_private_key_is_shown(folder: pathlib.Path) -> None:
    """The certificate is, for it is public."""
    made = certificates.make("a.example")
    (folder / "edge.yaml").write_text(
        "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {name: edge}\n"
        "stringData:\n"
        + "".join(
            f"  {key}: |\n" + "".join(f"    {line}\n" for line in text.splitlines())
            for key, text in (("tls.crt", made.certificate), ("tls.key", made.private_key))
        )
        + "---\napiVersion: pilothouse.dev/v1alpha1\nkind: MeshGateway\nmetadata: {name: edge}\n"
        "spec:\n  selector: {app: edge}\n  listeners:\n"
        "  - {name: https, port: 8443, protocol: HTTPS, tls: {certificates: [{secret: edge}]}}\n"
    )
    node = "gateway~10.0.0.7~edge-1.default~cluster.local"
    async with (
        support.serving(folder) as running,
        support.connected(running.address, node, labels={"app": "edge"}) as proxy,
        _channel(running) as channel,
    ):
        name = "secret|default/edge"
        await proxy.ask(types.SECRET.type_url, name)
        await waiting.eventually(lambda: name in proxy.names(types.SECRET))
        sent = proxy.resources[types.SECRET.type_url][name]
        assert b"PRIVATE KEY" in sent
        response = await _fetch(channel, _about(node))
        assert b"PRIVATE KEY" not in response.SerializeToString()
        shown = secret_pb2.Secret.FromString(_found(response, types.SECRET)[name].xds_config.value)
        chain = shown.tls_certificate.certificate_chain.inline_bytes
        assert chain.strip() == made.certificate.encode().strip()
