# SPDX-License-Identifier: Apache-2.0
"""Errors of unary calls that a program can read: a code, and an ErrorInfo beside it.

The form is that of https://google.aip.dev/193; the details travel as `grpc-status-details-bin`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2

DOMAIN = "pilothouse.dev"
_DETAILS = "grpc-status-details-bin"


async def abort(
    context: grpc.aio.ServicerContext[Any, Any],
    code: grpc.StatusCode,
    message: str,
    *,
    reason: str,
    metadata: Mapping[str, str] | None = None,
) -> NoReturn:
    """End a call with an error.

    Args:
        context: of the call.
        code: one of the canonical codes.
        message: for people.
        reason: UPPER_SNAKE, for programs; unique within Pilothouse.
        metadata: what the message speaks of, for programs: an object's name, a field.

    Raises:
        grpc.aio.AbortError: always; let it pass.
    """
    number, _ = code.value
    details = status_pb2.Status(code=number, message=message)
    details.details.add().Pack(
        error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=dict(metadata or {}))
    )
    await context.abort(code, message, ((_DETAILS, details.SerializeToString()),))
    raise AssertionError("abort returned")


def error_info(error: grpc.RpcError) -> error_details_pb2.ErrorInfo | None:
    """The ErrorInfo of a failed call, sync or aio; None where the server gave none."""
    trailing: Any = error.trailing_metadata()  # sync and aio differ in its type
    for key, value in trailing or ():
        if key != _DETAILS:
            continue
        for detail in status_pb2.Status.FromString(value).details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info):
                return info
    return None
