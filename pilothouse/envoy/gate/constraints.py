# SPDX-License-Identifier: Apache-2.0
"""Whether a message keeps the constraints that its own proto states, as Envoy checks them.

The annotations (`validate.rules`, `validate.required`) are in the descriptors that Envoy's messages
bring along, so nothing of Envoy is written down here. Each message type is compiled once, at its
first use: which of its fields must be there, and what holds for those that are.

The payload of an `Any` is checked by the rules of its own type, as Envoy does when it unpacks an
extension. A type that is unknown here is not looked into: whoever asks knows less than the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from google.protobuf import any_pb2, descriptor, descriptor_pool, message, message_factory

from pilothouse.api.validate import validate_pb2
from pilothouse.envoy.gate import findings, scalars

_Found = list[findings.Broken]
_FieldCheck = Callable[[Any, _Found], None]
"""Takes the value of a field that is set."""
_ANY: Final = "google.protobuf.Any"
_DURATION: Final = "google.protobuf.Duration"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
_OPAQUE: Final = frozenset(
    f"google.protobuf.{name}" for name in ("Empty", "ListValue", "Struct", "Timestamp", "Value")
)
_REQUIRED: Final = "must be set"


class _Type:
    """What holds for all messages of one type."""

    __slots__ = ("absent", "fields", "oneofs", "skipped")

    def __init__(self, kind: descriptor.Descriptor) -> None:
        options = kind.GetOptions()
        self.skipped = bool(
            options.Extensions[validate_pb2.disabled] or options.Extensions[validate_pb2.ignored]
        )
        self.fields: dict[int, _FieldCheck] = {}
        self.absent: tuple[tuple[int, findings.Broken], ...] = ()
        """By field number, what is wrong when the field is not there."""
        self.oneofs = tuple(
            (one.name, findings.Broken(one.name, "one of its fields must be set"))
            for one in kind.oneofs
            if one.GetOptions().Extensions[validate_pb2.required]
        )
        if not self.skipped:
            self._read(kind)

    def _read(self, kind: descriptor.Descriptor) -> None:
        absent = []
        for field in kind.fields:
            rules = _rules(field)
            missing = _absent(field, rules)
            if missing:
                absent.append((field.number, findings.Broken(field.name, missing)))
            check = _field(field, rules)
            if check is not None:
                self.fields[field.number] = check
        self.absent = tuple(absent)


_types: dict[str, _Type] = {}


def broken(value: message.Message) -> tuple[findings.Broken, ...]:
    """Every constraint that a message breaks; a payload that cannot be read breaks one too."""
    found: _Found = []
    _check(value, found)
    return tuple(found)


def _check(value: Any, found: _Found) -> None:
    kind = value.DESCRIPTOR
    compiled = _types.get(kind.full_name)
    if compiled is None:
        compiled = _types[kind.full_name] = _Type(kind)
    if compiled.skipped:
        return
    fields = compiled.fields
    present = value.ListFields()
    for field, content in present:
        check = fields.get(field.number)
        if check is not None:
            check(content, found)
    if compiled.absent:
        numbers = {field.number for field, _ in present}
        found.extend(lacking for number, lacking in compiled.absent if number not in numbers)
    for name, lacking in compiled.oneofs:
        if value.WhichOneof(name) is None:
            found.append(lacking)


def _rules(field: Any) -> validate_pb2.FieldRules:
    rules: validate_pb2.FieldRules = field.GetOptions().Extensions[validate_pb2.rules]
    return rules


def _absent(field: Any, rules: validate_pb2.FieldRules) -> str | None:
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
    if field.has_presence or _is_repeated(field) or which is None:
        return None
    return next(
        (text for check in _scalar(field, rules) if (text := check(field.default_value))), None
    )


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _field(field: Any, rules: validate_pb2.FieldRules) -> _FieldCheck | None:
    """What is checked of a field that is set; None if nothing is."""
    if _is_map(field):
        return _map(field, rules)
    if _is_repeated(field):
        return _repeated(field, rules)
    checks = _value(field, rules)
    if not checks:
        return None
    name = field.name

    def one(content: Any, found: _Found) -> None:
        before = len(found)
        for check in checks:
            check(content, found)
        if len(found) > before:
            found[before:] = [each.below(name) for each in found[before:]]

    return one


def _repeated(field: Any, rules: validate_pb2.FieldRules) -> _FieldCheck | None:
    whole = _counts(rules.repeated, "items", len)
    if rules.repeated.unique:
        whole.append(
            lambda v: None if len(set(v)) == len(v) else "must not have the same item twice"
        )
    checks = _value(field, rules.repeated.items)
    if not whole and not checks:
        return None
    name = field.name

    def each_item(content: Any, found: _Found) -> None:
        found.extend(
            findings.Broken(name, text) for check in whole if (text := check(content)) is not None
        )
        if not checks:
            return
        for position, item in enumerate(content):
            before = len(found)
            for check in checks:
                check(item, found)
            if len(found) > before:
                found[before:] = [one.below(f"{name}[{position}]") for one in found[before:]]

    return each_item


def _map(field: Any, rules: validate_pb2.FieldRules) -> _FieldCheck | None:
    whole = _counts(rules.map, "pairs", len)
    kinds = field.message_type.fields_by_name
    keys = _value(kinds["key"], rules.map.keys)
    values = _value(kinds["value"], rules.map.values)
    if not whole and not keys and not values:
        return None
    name = field.name

    def each_pair(content: Any, found: _Found) -> None:
        found.extend(
            findings.Broken(name, text) for check in whole if (text := check(content)) is not None
        )
        for key in sorted(content):
            before = len(found)
            for check in keys:
                check(key, found)
            for check in values:
                check(content[key], found)
            found[before:] = [one.below(f"{name}[{key}]") for one in found[before:]]

    return each_pair


def _counts(rules: Any, unit: str, measure: Callable[[Any], int]) -> list[scalars.Check]:
    least, most = (getattr(rules, f"{limit}_{unit}") for limit in ("min", "max"))
    checks: list[scalars.Check] = []
    if least:
        checks.append(
            lambda v: None if measure(v) >= least else f"must have at least {least} {unit}"
        )
    if most:
        checks.append(lambda v: None if measure(v) <= most else f"must have at most {most} {unit}")
    return checks


def _value(field: Any, rules: validate_pb2.FieldRules) -> list[_FieldCheck]:
    """What is checked of one value: of a field, of an item, of a key or of a map's value."""
    kind = field.message_type
    if kind is None:
        return [_told(check) for check in _scalar(field, rules)]
    if rules.message.skip or kind.full_name in _OPAQUE:
        return []
    if kind.full_name == _ANY:
        return [_payload]
    if kind.full_name == _DURATION:
        return [_told(check) for check in scalars.duration(rules.duration)]
    if kind.full_name in _WRAPPERS:
        inner = [_told(check) for check in _scalar(kind.fields_by_name["value"], rules)]
        return [_unwrapped(inner)] if inner else []
    return [_check]


def _told(check: scalars.Check) -> _FieldCheck:
    def tell(value: Any, found: _Found) -> None:
        text = check(value)
        if text is not None:
            found.append(findings.Broken("", text))

    return tell


def _unwrapped(checks: Iterable[_FieldCheck]) -> _FieldCheck:
    def inside(wrapper: Any, found: _Found) -> None:
        for check in checks:
            check(wrapper.value, found)

    return inside


def _scalar(field: Any, rules: validate_pb2.FieldRules) -> list[scalars.Check]:
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


def unpack(packed: any_pb2.Any) -> message.Message | None:
    """The payload of an extension; None if its type is unknown here.

    Raises:
        google.protobuf.message.DecodeError: it is no message of its type.
    """
    kind = _kind(packed.type_url.rpartition("/")[2])
    return None if kind is None else kind.FromString(packed.value)


_kinds: dict[str, type[message.Message] | None] = {}


def _kind(name: str) -> type[message.Message] | None:
    if name not in _kinds:
        try:
            found = descriptor_pool.Default().FindMessageTypeByName(name)
        except KeyError:
            return None  # it may be imported later
        _kinds[name] = message_factory.GetMessageClass(found)
    return _kinds[name]


def _payload(packed: any_pb2.Any, found: _Found) -> None:
    try:
        value = unpack(packed)
    except message.DecodeError:
        found.append(findings.Broken("", f"must be a {packed.type_url.rpartition('/')[2]}"))
        return
    if value is not None:
        _check(value, found)
