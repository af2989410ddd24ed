# SPDX-License-Identifier: Apache-2.0
"""Which nodes somebody means: Envoy's NodeMatcher, as far as it can be told safely.

Expressions are not taken: whoever may ask could hold up the server with one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from google.protobuf import struct_pb2

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.type.matcher.v3 import node_pb2, string_pb2, value_pb2
from pilothouse.api.envoy.type.matcher.v3 import struct_pb2 as struct_matcher_pb2
from pilothouse.xds import requests


def matches(wanted: Iterable[node_pb2.NodeMatcher], node: base_pb2.Node) -> bool:
    """Tell whether any of the matchers matches a node; without matchers every node is meant.

    Raises:
        requests.ProtocolError: a matcher is of a kind that is not understood.
    """
    found = [_matches(one, node) for one in wanted]
    return any(found) if found else True


def _matches(wanted: node_pb2.NodeMatcher, node: base_pb2.Node) -> bool:
    held = [_in_metadata(one, node.metadata) for one in wanted.node_metadatas]
    if wanted.HasField("node_id"):
        held.append(_string(wanted.node_id, node.id))
    return all(held)


def _string(wanted: string_pb2.StringMatcher, text: str) -> bool:
    kind = wanted.WhichOneof("match_pattern")

    def folded(value: str) -> str:
        return value.lower() if wanted.ignore_case else value

    match kind:
        case "exact":
            return folded(text) == folded(wanted.exact)
        case "prefix":
            return folded(text).startswith(folded(wanted.prefix))
        case "suffix":
            return folded(text).endswith(folded(wanted.suffix))
        case "contains":
            return folded(wanted.contains) in folded(text)
        case "safe_regex" | "custom" | None:
            raise _unknown("a string", kind, "exact, prefix, suffix, contains")
        case _:
            assert_never(kind)


def _in_metadata(wanted: struct_matcher_pb2.StructMatcher, metadata: struct_pb2.Struct) -> bool:
    value = struct_pb2.Value(struct_value=metadata)
    for segment in wanted.path:
        if segment.key not in value.struct_value.fields:
            return _absent(wanted.value)
        value = value.struct_value.fields[segment.key]
    return _value(wanted.value, value)


def _absent(wanted: value_pb2.ValueMatcher) -> bool:
    return wanted.WhichOneof("match_pattern") == "present_match" and not wanted.present_match


def _value(wanted: value_pb2.ValueMatcher, value: struct_pb2.Value) -> bool:
    kind = wanted.WhichOneof("match_pattern")
    match kind:
        case "string_match":
            is_text = value.HasField("string_value")
            return is_text and _string(wanted.string_match, value.string_value)
        case "bool_match":
            return value.HasField("bool_value") and value.bool_value == wanted.bool_match
        case "present_match":
            return wanted.present_match
        case "null_match" | "double_match" | "list_match" | "or_match" | None:
            raise _unknown("a value", kind, "string_match, bool_match, present_match")
        case _:
            assert_never(kind)


def _unknown(what: str, kind: str | None, known: str) -> requests.ProtocolError:
    text = f"{what} is matched by {kind or 'nothing'}; known: {known}"
    return requests.ProtocolError("INVALID_ARGUMENT", text)
