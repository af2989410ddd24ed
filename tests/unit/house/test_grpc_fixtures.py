# SPDX-License-Identifier: Apache-2.0
"""pytest-grpc's fixtures serve `async def`."""

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tests.support.grpc_fixtures import _grpc_server, grpc_addr  # noqa: F401 - fixtures


@pytest.fixture(scope="module")
def grpc_add_to_server():
    return health_pb2_grpc.add_HealthServicer_to_server


@pytest.fixture(scope="module")
def grpc_servicer():
    return health.aio.HealthServicer()


@pytest.fixture(scope="module")
def grpc_stub_cls():
    return health_pb2_grpc.HealthStub


def test_unary_call_is_answered(grpc_stub):
    answer = grpc_stub.Check(health_pb2.HealthCheckRequest(service=""))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_abort_arrives_as_its_code(grpc_stub):
    with pytest.raises(grpc.RpcError) as caught:
        grpc_stub.Check(health_pb2.HealthCheckRequest(service="nobody"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_stream_is_served(grpc_stub):
    stream = grpc_stub.Watch(health_pb2.HealthCheckRequest(service=""))
    assert next(stream).status == health_pb2.HealthCheckResponse.SERVING
    stream.cancel()
