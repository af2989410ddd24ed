# SPDX-License-Identifier: Apache-2.0
"""Every type of Envoy's that is in the table: both variants, aggregated and on its own service.

The bodies are real messages of the type, read back with protobuf's own runtime.
"""

import contextlib

import grpc
import grpc.aio
import pytest
from google.protobuf import message

from pilothouse.adapters.rpc import services
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import resources, types
from tests.support import xds_calls, xds_server
from tests.support.waiting import eventually

NODE = "sidecar~10.0.0.1~a.default~cluster.local"
ENVOYS = [one for one in types.ALL if one.type_url.startswith(f"{types.PREFIX}envoy.")]
BY_TYPE = {one.type_url: one for one in services.PER_TYPE}
ONLY_DELTA = {types.VIRTUAL_HOST}
WAYS = [
    pytest.param(kind, variant, aggregated, id=f"{kind.short}-{variant}-{where}")
    for kind in ENVOYS
    for variant in ("sotw", "delta")
    for aggregated, where in ((True, "aggregated"), (False, "separate"))
    if aggregated or not (variant == "sotw" and kind in ONLY_DELTA)
]


def made(kind, *names, content=""):
    """A snapshot of resources with these names; the content only makes the version another."""
    return resources.Snapshot.of(
        [
            resources.Layer.of(
                resources.Resource.of(
                    kind.type_url,
                    name,
                    xds_calls.named(kind.type_url, name).SerializeToString(),
                    version=f"{name}{content}",
                )
                for name in names
            )
        ]
    )


@contextlib.asynccontextmanager
async def client_of(host, variant, *, aggregated):
    """A client of a server with this host."""

    async def heard(_requests):
        """Nothing has to be awaited: the test reads what is answered."""

    async with (
        xds_server.serving_xds(host) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        kind = xds_calls.SotwClient if variant == "sotw" else xds_calls.DeltaClient
        client = kind(channel, node=NODE, aggregated=aggregated, heard=heard)
        try:
            yield client
        finally:
            client.close()


def test_every_type_of_envoys_has_a_service():
    """And no service serves a type that is not in the table."""
    assert list(BY_TYPE) == [kind.type_url for kind in ENVOYS]


@pytest.mark.parametrize(("kind", "variant", "aggregated"), WAYS)
async def test_p4_a_type_is_served_by_name(kind, variant, aggregated):
    """What is there, what is missing, what changes, and what comes into being."""
    host = xds_server.Host(made(kind, "r/a"))
    url = kind.type_url
    async with client_of(host, variant, aggregated=aggregated) as client:
        await client.subscribe(url, "r/a", "r/nobody")
        reply = await client.read(url)
        assert (reply.names, reply.missing) == ({"r/a"}, {"r/nobody"})
        host.give(made(kind, "r/a", "r/nobody", content="2"))
        names = set()
        while names != {"r/a", "r/nobody"}:
            names |= (await client.read(url)).names
        await eventually(lambda: host.in_sync)
    assert host.refused == []


@pytest.mark.parametrize(("kind", "variant", "aggregated"), WAYS)
async def test_p22_p29_an_empty_list_is_everything_for_whole_sets_alone(kind, variant, aggregated):
    """The next response is about what is asked for by name then."""
    host = xds_server.Host(made(kind, "r/a", "r/b"))
    url = kind.type_url
    async with client_of(host, variant, aggregated=aggregated) as client:
        await client.subscribe(url)
        if not kind.wildcard:
            await client.subscribe(url, "r/a")
        assert (await client.read(url)).names == ({"r/a", "r/b"} if kind.wildcard else {"r/a"})


@pytest.mark.parametrize(("kind", "variant", "aggregated"), WAYS)
async def test_p56_nothing_expires(kind, variant, aggregated):
    """No resource has a time to live, nor is any wrapped for one: nothing is deleted by a clock."""
    async with (
        xds_server.serving_xds(xds_server.Host(made(kind, "r/a"))) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        service = services.ADS if aggregated else BY_TYPE[kind.type_url]
        method = service.sotw if variant == "sotw" else service.delta
        call = channel.stream_stream(f"/{service.name}/{method}")()
        request = (
            discovery_pb2.DiscoveryRequest(resource_names=["r/a"])
            if variant == "sotw"
            else discovery_pb2.DeltaDiscoveryRequest(resource_names_subscribe=["r/a"])
        )
        request.type_url, request.node.id = kind.type_url, NODE
        request.node.client_features.append("xds.config.resource-in-sotw")
        await call.write(request.SerializeToString())
        body = await call.read()
        call.cancel()
    if variant == "sotw":
        (one,) = discovery_pb2.DiscoveryResponse.FromString(body).resources
        assert one.type_url == kind.type_url
    else:
        (one,) = discovery_pb2.DeltaDiscoveryResponse.FromString(body).resources
        assert not one.HasField("ttl")
        assert not one.HasField("cache_control")


@pytest.mark.parametrize("kind", ENVOYS, ids=lambda kind: kind.short)
async def test_p3_a_service_of_one_type_refuses_another(kind):
    """With the types in the words of the error."""
    other = types.LISTENER if kind is types.CLUSTER else types.CLUSTER
    async with (
        xds_server.serving_xds(xds_server.Host()) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        call = channel.stream_stream(BY_TYPE[kind.type_url].delta_path)()
        request: message.Message = discovery_pb2.DeltaDiscoveryRequest(
            node={"id": NODE}, type_url=other.type_url
        )
        await call.write(request.SerializeToString())
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call.read()
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert other.type_url in error.value.details()


@pytest.mark.parametrize("kind", ENVOYS, ids=lambda kind: kind.short)
async def test_p64_rest_is_not_served(kind):
    """A client is told so, instead of being left with what it holds."""
    service = BY_TYPE[kind.type_url]
    fetch = service.delta.replace("Delta", "Fetch")
    async with (
        xds_server.serving_xds(xds_server.Host()) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await channel.unary_unary(f"/{service.name}/{fetch}")(b"")
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
