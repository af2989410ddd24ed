# SPDX-License-Identifier: Apache-2.0
"""The trace context of a resource, as it travels in the metadata beside the resource's body.

It is no part of a resource's version: a new trace alone sends nothing. An unreadable one is no
trace, never an error: whoever traces must not stop whoever configures.

A removal is a name and nothing else, so its trace goes behind the response's version, a field that
is "only for debugging" by its definition (`DeltaDiscoveryResponse.system_version_info`).
"""

from google.protobuf import message

from pilothouse.api.envoy.config.core.v3 import base_pb2

NAMESPACE = "pilothouse.trace"
"""Key of the trace in ``Metadata.filter_metadata``."""
_FIELD = "traceparent"


def encode(traceparent: str) -> bytes:
    """The metadata, encoded, that carries a W3C traceparent; empty for an empty one."""
    if not traceparent:
        return b""
    metadata = base_pb2.Metadata()
    metadata.filter_metadata[NAMESPACE].update({_FIELD: traceparent})
    return metadata.SerializeToString(deterministic=True)


def mark(version: str, traceparent: str) -> str:
    """The version of a response that removes something, with the trace of the removal."""
    return f"{version};{traceparent}"


def marked(version: str) -> str:
    """The traceparent that a response's version carries, or ""."""
    return version.partition(";")[2]


def decode(metadata: bytes) -> str:
    """The traceparent that an encoded metadata carries, or ""."""
    if not metadata:
        return ""
    try:
        read = base_pb2.Metadata.FromString(metadata)
    except message.DecodeError:
        return ""
    if NAMESPACE not in read.filter_metadata:
        return ""
    return read.filter_metadata[NAMESPACE].fields[_FIELD].string_value
