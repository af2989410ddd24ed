# SPDX-License-Identifier: Apache-2.0
"""From a client's node to the Proxy that its configuration depends on."""

from __future__ import annotations

from google.protobuf import struct_pb2

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.model import keys, mapped, proxy, services


class NodeError(ValueError):
    """A node that cannot be served; the message says which part of it is wrong."""


def read(node: base_pb2.Node) -> proxy.Proxy:
    """Read a proxy's facts; unknown metadata is ignored.

    Raises:
        NodeError: the id or a metadata field has the wrong form.
    """
    try:
        node_id = proxy.NodeId.parse(node.id)
    except ValueError as error:
        raise NodeError(str(error)) from error
    metadata = node.metadata
    interception = _text(metadata, "INTERCEPTION", str(proxy.Interception.EXPLICIT))
    if interception not in set(proxy.Interception):
        known = ", ".join(proxy.Interception)
        msg = f"node {node.id}: metadata INTERCEPTION is {interception!r}; known: {known}"
        raise NodeError(msg)
    return proxy.Proxy(
        id=node_id,
        labels=_labels(metadata),
        locality=services.Locality(
            region=node.locality.region, zone=node.locality.zone, sub_zone=node.locality.sub_zone
        ),
        interception=proxy.Interception(interception),
        bind_address=_text(metadata, "BIND_ADDRESS", proxy.DEFAULT_BIND_ADDRESS),
        application_address=_text(
            metadata, "APPLICATION_ADDRESS", proxy.DEFAULT_APPLICATION_ADDRESS
        ),
        outbound_port=_port(metadata, node.id),
        mapped=_mapped(metadata, node.id),
        certificate_provider=_text(metadata, "CERTIFICATE_PROVIDER", ""),
    )


def _text(metadata: struct_pb2.Struct, key: str, default: str) -> str:
    value = metadata.fields.get(key)
    return value.string_value or default if value is not None else default


def _labels(metadata: struct_pb2.Struct) -> keys.Labels:
    value = metadata.fields.get("LABELS")
    if value is None:
        return ()
    return tuple(
        sorted((name, label.string_value) for name, label in value.struct_value.fields.items())
    )


def _mapped(metadata: struct_pb2.Struct, node_id: str) -> tuple[mapped.MappedPort, ...]:
    """Mapped ports, as a list of texts or as one text with commas."""
    value = metadata.fields.get("MAPPED_PORTS")
    if value is None:
        return ()
    texts = [one.string_value for one in value.list_value.values] or value.string_value.split(",")
    try:
        return mapped.parse_all(tuple(text.strip() for text in texts if text.strip()))
    except ValueError as error:
        raise NodeError(f"node {node_id}: metadata MAPPED_PORTS: {error}") from error


def _port(metadata: struct_pb2.Struct, node_id: str) -> int:
    """The port as a number or as text: agents may send either."""
    value = metadata.fields.get("OUTBOUND_PORT")
    if value is None:
        return proxy.DEFAULT_OUTBOUND_PORT
    text = value.string_value or str(int(value.number_value))
    if not (text.isdigit() and 0 < int(text) <= 65535):
        msg = f"node {node_id}: metadata OUTBOUND_PORT is {text!r}, not a port"
        raise NodeError(msg)
    return int(text)
