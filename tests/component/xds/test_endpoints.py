# SPDX-License-Identifier: Apache-2.0
"""Endpoints of a service that has none, from the real discovery."""

import grpc.aio
import pytest

from pilothouse.api.envoy.config.endpoint.v3 import endpoint_pb2
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from tests.support import fleet

SERVICE = "/envoy.service.discovery.v3.AggregatedDiscoveryService"
NODE = "sidecar~10.0.0.1~client.default~cluster.local"
NAME = "outbound|80||app.default"


@pytest.mark.parametrize("variant", fleet.VARIANTS)
async def test_p53_a_cluster_without_endpoints_gets_an_empty_assignment(variant):
    """Never silence, for which Envoy would wait 15 seconds."""
    async with fleet.fleet({"app.yaml": fleet.service("app")}) as made:
        await made.start()
        async with grpc.aio.insecure_channel(made.grpc) as channel:
            delta = variant == "delta"
            method = "DeltaAggregatedResources" if delta else "StreamAggregatedResources"
            call = channel.stream_stream(f"{SERVICE}/{method}")()
            request = (
                discovery_pb2.DeltaDiscoveryRequest(resource_names_subscribe=[NAME])
                if delta
                else discovery_pb2.DiscoveryRequest(resource_names=[NAME])
            )
            request.type_url, request.node.id = fleet.EDS, NODE
            await call.write(request.SerializeToString())
            body = await call.read()
            call.cancel()
        if delta:
            (one,) = discovery_pb2.DeltaDiscoveryResponse.FromString(body).resources
            body = one.resource.value
        else:
            (one,) = discovery_pb2.DiscoveryResponse.FromString(body).resources
            body = one.value
        assert endpoint_pb2.ClusterLoadAssignment.FromString(body) == (
            endpoint_pb2.ClusterLoadAssignment(cluster_name=NAME)
        )
