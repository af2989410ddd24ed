# SPDX-License-Identifier: Apache-2.0
"""What a server checks in a request before it looks at what is asked."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf import message

from pilothouse.api.envoy.config.core.v3 import base_pb2

_T = TypeVar("_T", bound=message.Message)


class ProtocolError(Exception):
    """The client broke the protocol; the stream must end with this gRPC status."""

    def __init__(self, code: str, text: str) -> None:
        """``code`` is the name of a gRPC status code."""
        super().__init__(text)
        self.code = code


def parse(kind: type[_T], request: bytes) -> _T:
    """Decode a request.

    Raises:
        ProtocolError: it is no such message.
    """
    try:
        return kind.FromString(request)
    except message.DecodeError as error:
        raise ProtocolError(
            "INVALID_ARGUMENT", f"not a {kind.DESCRIPTOR.full_name}: {error}"
        ) from error


def type_of(type_url: str, *, default: str | None) -> str:
    """The type that a request is about.

    Args:
        type_url: from the request.
        default: the type of a stream of one type; None on an aggregated stream.

    Raises:
        ProtocolError: it names none where it must, or another one than the stream's.
    """
    if default is None:
        if not type_url:
            raise ProtocolError("INVALID_ARGUMENT", "type_url is required on an aggregated stream")
        return type_url
    if type_url not in ("", default):
        text = f"type_url is {type_url}, but this stream serves {default}"
        raise ProtocolError("INVALID_ARGUMENT", text)
    return default


def identify(known: base_pb2.Node | None, node: base_pb2.Node, *, given: bool) -> base_pb2.Node:
    """Who the client is.

    Args:
        known: from earlier requests of the stream; None at the first.
        node: from this request.
        given: True if the request carries a node.

    Raises:
        ProtocolError: the first request does not say, or a later one says another.
    """
    if known is None:
        if not node.id:
            raise ProtocolError(
                "INVALID_ARGUMENT", "the first request must carry a node with an id"
            )
        known = base_pb2.Node()
        known.CopyFrom(node)
    elif given and node.id != known.id:
        text = f"the node changed from {known.id} to {node.id}"
        raise ProtocolError("INVALID_ARGUMENT", text)
    return known
