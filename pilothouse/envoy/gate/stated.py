# SPDX-License-Identifier: Apache-2.0
"""What the annotations of Envoy's protos say of a field, read from its descriptor."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor

from pilothouse.api.validate import validate_pb2
from pilothouse.envoy.gate import scalars

ANY: Final = "google.protobuf.Any"
OPAQUE: Final = frozenset(
    f"google.protobuf.{name}" for name in ("Empty", "ListValue", "Struct", "Timestamp", "Value")
)
"""Types in which nothing is checked."""
_REQUIRED: Final = "must be set"


def rules_of(field: Any) -> validate_pb2.FieldRules:
    """The rules of a field; empty ones if it has none."""
    rules: validate_pb2.FieldRules = field.GetOptions().Extensions[validate_pb2.rules]
    return rules


def absent(field: Any, rules: validate_pb2.FieldRules) -> str | None:
    """The rule that a field breaks by not being there; None if it may be left out."""
    if field.containing_oneof is not None:
        return None  # the rules of a choice hold for what was chosen
    which = rules.WhichOneof("type")
    if rules.message.required or (
        which in ("any", "duration", "timestamp") and getattr(rules, which).required
    ):
        return _REQUIRED
    if which == "repeated" and rules.repeated.min_items and not rules.repeated.ignore_empty:
        return f"must have at least {rules.repeated.min_items} items"
    if which == "map" and rules.map.min_pairs and not rules.map.ignore_empty:
        return f"must have at least {rules.map.min_pairs} pairs"
    if field.has_presence or is_repeated(field) or which is None:
        return None
    return next(
        (text for check in scalar(field, rules) if (text := check(field.default_value))), None
    )


def is_repeated(field: Any) -> bool:
    """Tell whether a field is a list or a map."""
    return bool(field.is_repeated)


def is_map(field: Any) -> bool:
    """Tell whether a field is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def scalar(field: Any, rules: validate_pb2.FieldRules) -> list[scalars.Check]:
    """The checks of one value that is no message."""
    which = rules.WhichOneof("type")
    if which is None or field.message_type is not None:
        return []
    stated = getattr(rules, which)
    match which:
        case "string":
            return scalars.text(stated)
        case "bytes":
            return scalars.blob(stated)
        case "bool":
            return scalars.boolean(stated)
        case "enum":
            return scalars.enumeration(stated, frozenset(field.enum_type.values_by_number))
        case "message" | "repeated" | "map" | "any" | "duration" | "timestamp":
            return []
        case _:
            return scalars.number(stated)


def matters(kind: descriptor.Descriptor) -> bool:
    """Tell whether anything is to be checked of a type, or of what its messages may hold."""
    if kind not in _known_to_matter:
        seen: set[descriptor.Descriptor] = set()
        left = [kind]
        while left:
            one = left.pop()
            if one in seen or one.full_name in OPAQUE:
                continue
            seen.add(one)
            left += [field.message_type for field in one.fields if field.message_type is not None]
        _known_to_matter[kind] = any(map(_has_rules, seen))
    return _known_to_matter[kind]


_known_to_matter: dict[descriptor.Descriptor, bool] = {}


def _has_rules(kind: descriptor.Descriptor) -> bool:
    return kind.full_name == ANY or any(
        (
            *(one.GetOptions().HasExtension(validate_pb2.required) for one in kind.oneofs),
            *(one.GetOptions().HasExtension(validate_pb2.rules) for one in kind.fields),
        )
    )
