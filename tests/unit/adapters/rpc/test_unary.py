# SPDX-License-Identifier: Apache-2.0
"""Errors of unary calls, as a client of pytest-grpc sees them."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from pilothouse.adapters.rpc import unary
from tests.support.grpc_fixtures import _grpc_server, grpc_addr  # noqa: F401 - fixtures


class Health(health_pb2_grpc.HealthServicer):
    """Any unary service would do."""

    async def Check(self, request, context):
        if request.service == "plain":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        await unary.abort(
            context,
            grpc.StatusCode.FAILED_PRECONDITION,
            "the object is older",
            reason="STALE_OBJECT",
            metadata={"object": request.service},
        )


@pytest.fixture(scope="module")
def grpc_add_to_server():
    return health_pb2_grpc.add_HealthServicer_to_server


@pytest.fixture(scope="module")
def grpc_servicer():
    return Health()


@pytest.fixture(scope="module")
def grpc_stub_cls():
    return health_pb2_grpc.HealthStub


def test_error_carries_code_message_reason_and_object(grpc_stub):
    """A client finds code and message where gRPC puts them, and the rest in the ErrorInfo."""
    with pytest.raises(grpc.RpcError) as caught:
        grpc_stub.Check(health_pb2.HealthCheckRequest(service="a"))
    error = caught.value
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert error.details() == "the object is older"
    info = unary.error_info(error)
    assert (info.reason, info.domain, dict(info.metadata)) == (
        "STALE_OBJECT",
        "pilothouse.dev",
        {"object": "a"},
    )


def test_error_is_what_grpc_status_expects(grpc_stub):
    """gRPC's own reader of rich errors accepts it: code and message agree."""
    with pytest.raises(grpc.RpcError) as caught:
        grpc_stub.Check(health_pb2.HealthCheckRequest(service="a"))
    assert len(rpc_status.from_call(caught.value).details) == 1


def test_plain_error_has_no_info(grpc_stub):
    """An error of another make has none."""
    with pytest.raises(grpc.RpcError) as caught:
        grpc_stub.Check(health_pb2.HealthCheckRequest(service="plain"))
    assert unary.error_info(caught.value) is None
