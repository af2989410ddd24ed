# SPDX-License-Identifier: Apache-2.0
"""How large a response may be, by who reads it."""

from __future__ import annotations

from pilothouse.model import proxy

GRPC_LIMIT = 3_900_000
"""Bytes of resources in a response to a gRPC application: it refuses messages of more than 4 MiB,
ends the stream, and comes back for the same (https://github.com/grpc/grpc-go/issues/5790)."""


def of_node(node_id: str) -> int | None:
    """Bytes that a response to the client of this node id may hold; None for any number."""
    return GRPC_LIMIT if node_id.startswith(f"{proxy.Role.GRPC}~") else None
