# SPDX-License-Identifier: Apache-2.0
"""How large a resource may be.

gRPC takes messages of up to 4 MiB unless it is told otherwise, and an application that meets a
larger response ends the stream and comes back for the very same one, for ever
(https://github.com/grpc/grpc-go/issues/5790). A response can be split between resources, so one
resource is what must fit. Envoy takes any size, but all its listeners stand still while it reads
one: from some size on people should know.
"""

from __future__ import annotations

from typing import Final

from pilothouse.envoy.gate import findings
from pilothouse.xds import resources

GRPC_LIMIT: Final = 3_900_000
"""Bytes of one resource for a gRPC application; the rest is for what is around it."""
ALARM: Final = 2 * 1024 * 1024
"""Bytes of one resource for an Envoy from which on it is counted as large."""


def too_large(resource: resources.Resource) -> tuple[findings.Broken, ...]:
    """Whether a resource does not fit into a response to a gRPC application."""
    size = len(resource.sotw_frame)
    if size <= GRPC_LIMIT:
        return ()
    rule = f"must have at most {GRPC_LIMIT} bytes for gRPC applications, has {size}"
    return (findings.Broken("", rule),)


def is_large(resource: resources.Resource) -> bool:
    """Whether it is worth an alarm."""
    return len(resource.body) > ALARM
