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
from pilothouse.envoy.gate import findings, scalars, stated

_Found = list[findings.Broken]
_FieldCheck = Callable[[Any, _Found], None]
"""Takes the value of a field that is set."""
_DURATION: Final = "google.protobuf.Duration"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
_Lacking = tuple[str, findings.Broken]
"""Name of a choice, and what is wrong when nothing was chosen."""
_FEW: Final = 12
"""With so many fields to check at most, asking for each takes less time than listing all set."""


class _Type:
    """What holds for all messages of one type."""

    __slots__ = ("absent", "check", "fields", "oneofs")

    def __init__(self, kind: descriptor.Descriptor) -> None:
        self.fields: dict[int, _FieldCheck] = {}
        self.absent: dict[int, findings.Broken] = {}
        """By field number, what is wrong when the field is not there."""
        self.oneofs: tuple[_Lacking, ...] = ()
        options = kind.GetOptions().Extensions
        if not (options[validate_pb2.disabled] or options[validate_pb2.ignored]):
            self._read(kind)
        few = len(self.fields.keys() | self.absent.keys()) <= _FEW
        self.check = _asking(kind, self) if few else _listing(self)

    def _read(self, kind: descriptor.Descriptor) -> None:
        self.oneofs = tuple(
            (one.name, findings.Broken(one.name, "one of its fields must be set"))
            for one in kind.oneofs
            if one.GetOptions().Extensions[validate_pb2.required]
        )
        for field in kind.fields:
            rules = stated.rules_of(field)
            missing = stated.absent(field, rules)
            if missing:
                self.absent[field.number] = findings.Broken(field.name, missing)
            check = _field(field, rules)
            if check is not None:
                self.fields[field.number] = check


def _presence(name: str, inner: _FieldCheck | None, lacking: findings.Broken | None) -> _FieldCheck:
    """Ask for a field of which the message tells whether it is set."""

    def ask(value: Any, found: _Found) -> None:
        if value.HasField(name):
            if inner is not None:
                inner(getattr(value, name), found)
        elif lacking is not None:
            found.append(lacking)

    return ask


def _implicit(
    field: Any, inner: _FieldCheck | None, lacking: findings.Broken | None
) -> _FieldCheck:
    """Ask for a field that is set if it is something else than nothing."""
    name = field.name
    default = None if stated.is_repeated(field) else field.default_value

    def ask(value: Any, found: _Found) -> None:
        content = getattr(value, name)
        if content if default is None else content != default:
            if inner is not None:
                inner(content, found)
        elif lacking is not None:
            found.append(lacking)

    return ask


def _choice(name: str, lacking: findings.Broken) -> _FieldCheck:
    def ask(value: Any, found: _Found) -> None:
        if value.WhichOneof(name) is None:
            found.append(lacking)

    return ask


_types: dict[descriptor.Descriptor, _Type] = {}


def broken(value: message.Message) -> tuple[findings.Broken, ...]:
    """Every constraint that a message breaks; a payload that cannot be read breaks one too."""
    found: _Found = []
    _check(value, found)
    return tuple(found)


def _check(value: Any, found: _Found) -> None:
    kind = value.DESCRIPTOR
    compiled = _types.get(kind)
    if compiled is None:
        compiled = _types[kind] = _Type(kind)
    compiled.check(value, found)


def _of(kind: descriptor.Descriptor) -> _FieldCheck:
    """The check of a type of message, which is compiled at its first use: types hold themselves."""
    known: list[_FieldCheck] = []

    def check(value: Any, found: _Found) -> None:
        if not known:
            compiled = _types.get(kind)
            if compiled is None:
                compiled = _types[kind] = _Type(kind)
            known.append(compiled.check)
        known[0](value, found)

    return check


def _asking(kind: descriptor.Descriptor, compiled: _Type) -> _FieldCheck:
    """Ask for each field that has something to check."""
    asked: list[_FieldCheck] = []
    for number in sorted(compiled.fields.keys() | compiled.absent.keys()):
        field: Any = kind.fields_by_number[number]
        inner, lacking = compiled.fields.get(number), compiled.absent.get(number)
        asked.append(
            _presence(field.name, inner, lacking)
            if field.has_presence
            else _implicit(field, inner, lacking)
        )
    asked += [_choice(*one) for one in compiled.oneofs]

    def check(value: Any, found: _Found) -> None:
        for ask in asked:
            ask(value, found)

    return check


def _listing(compiled: _Type) -> _FieldCheck:
    """Have all fields listed that are set."""
    fields, absent, oneofs = compiled.fields, compiled.absent, compiled.oneofs

    def check(value: Any, found: _Found) -> None:
        present = value.ListFields()
        for field, content in present:
            inner = fields.get(field.number)
            if inner is not None:
                inner(content, found)
        if absent:
            numbers = {field.number for field, _ in present}
            found.extend(lacking for one, lacking in absent.items() if one not in numbers)
        for name, lack in oneofs:
            if value.WhichOneof(name) is None:
                found.append(lack)

    return check


def _field(field: Any, rules: validate_pb2.FieldRules) -> _FieldCheck | None:
    """What is checked of a field that is set; None if nothing is."""
    if stated.is_map(field):
        return _map(field, rules)
    if stated.is_repeated(field):
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
        return [_told(check) for check in stated.scalar(field, rules)]
    if rules.message.skip or kind.full_name in stated.OPAQUE:
        return []
    if kind.full_name == stated.ANY:
        return [_payload]
    if kind.full_name == _DURATION:
        return [_told(check) for check in scalars.duration(rules.duration)]
    if kind.full_name in _WRAPPERS:
        inner = [_told(check) for check in stated.scalar(kind.fields_by_name["value"], rules)]
        return [_unwrapped(inner)] if inner else []
    return [_of(kind)] if stated.matters(kind) else []


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
