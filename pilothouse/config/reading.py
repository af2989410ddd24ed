# SPDX-License-Identifier: Apache-2.0
"""A mapping as YAML gives it, into a message: one walker for all kinds, led by the descriptors.

It tells every mistake, not the first one only. What the values mean together is no business of
this module (`pilothouse.config.validation`); whether each can be a value of its field is.
"""

from __future__ import annotations

import base64
import functools
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from google.protobuf import descriptor
from google.protobuf import message as protobuf

from pilothouse.config import documents, scalars, violations

_Field = descriptor.FieldDescriptor
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)
_INTEGERS = {
    _Field.TYPE_INT32: _INT32,
    _Field.TYPE_SINT32: _INT32,
    _Field.TYPE_UINT32: range(2**32),
    _Field.TYPE_INT64: _INT64,
    _Field.TYPE_UINT64: range(2**64),
}


class _WrongError(Exception):
    """A value that its field cannot take; the message says what it must be and what it is."""


def read(
    into: protobuf.Message,
    value: object,
    *,
    path: str,
    ignored: Collection[str] = (),
) -> tuple[violations.Violation, ...]:
    """Fill a message from a mapping.

    Args:
        into: Filled as far as the mapping can be understood.
        value: What the YAML document has at ``path``.
        path: Field path of the message, for violations.
        ignored: Names that are allowed at the top, and not read.

    Returns:
        Every mistake, in the order of the mapping.
    """
    reader = _Reader()
    reader.read_message(into, value, path=path, ignored=ignored)
    return tuple(reader.found)


@functools.cache
def fields_of(message: descriptor.Descriptor) -> Mapping[str, descriptor.FieldDescriptor]:
    """The fields of a message by the name that YAML has for them."""
    return {str(field.json_name): field for field in message.fields}


def is_map(field: descriptor.FieldDescriptor) -> bool:
    """Tell whether a field is a map; protobuf calls that a repeated message of pairs."""
    return (
        field.is_repeated
        and field.message_type is not None
        and field.message_type.GetOptions().map_entry
    )


class _Reader:
    def __init__(self) -> None:
        self.found: list[violations.Violation] = []

    def read_message(
        self,
        into: protobuf.Message,
        value: object,
        *,
        path: str,
        ignored: Collection[str] = (),
    ) -> None:
        if not isinstance(value, Mapping):
            self._add(path, f"must be a mapping, is {documents.describe(value)}")
            return
        fields = fields_of(into.DESCRIPTOR)
        for name, item in value.items():
            where = f"{path}.{name}"
            if name not in fields:
                if name not in ignored:
                    self._add(where, _unknown(name, fields))
            elif item is not None:  # null is how Kubernetes writes "unset"
                self._read_field(into, fields[name], item, path=where)
        for choice in into.DESCRIPTOR.oneofs:
            names = [str(field.json_name) for field in choice.fields]
            given = [f"`{name}`" for name in names if value.get(name) is not None]
            if len(given) > 1:
                self._add(path, f"{' and '.join(given)} exclude each other; set one of them")

    def _read_field(self, into: Any, field: _Field, value: object, *, path: str) -> None:
        if field.is_repeated:
            if is_map(field):
                self._read_map(into, field, value, path=path)
            else:
                self._read_list(into, field, value, path=path)
        elif field.message_type is None:
            self._scalar(field, value, path=path, put=functools.partial(setattr, into, field.name))
        else:
            target = getattr(into, field.name)
            target.SetInParent()
            self._read_inner(target, value, path=path)

    def _read_map(self, into: Any, field: _Field, value: object, *, path: str) -> None:
        if not isinstance(value, Mapping):
            self._add(path, f"must be a mapping, is {documents.describe(value)}")
            return
        of_values = into.DESCRIPTOR.fields_by_name[field.name].message_type.fields_by_name["value"]
        target = getattr(into, field.name)
        for key, item in value.items():
            self._scalar(
                of_values,
                item,
                path=f"{path}[{key}]",
                put=functools.partial(target.__setitem__, key),
            )

    def _read_list(self, into: Any, field: _Field, value: object, *, path: str) -> None:
        if not isinstance(value, list):
            self._add(path, f"must be a list, is {documents.describe(value)}")
            return
        target = getattr(into, field.name)
        for index, item in enumerate(value):
            where = f"{path}[{index}]"
            if field.message_type is None:
                self._scalar(field, item, path=where, put=target.append)
            else:
                self._read_inner(target.add(), item, path=where)

    def _read_inner(self, into: Any, value: object, *, path: str) -> None:
        """A message, or a duration or time, which are messages that YAML writes as text."""
        match into.DESCRIPTOR.full_name:
            case "google.protobuf.Duration":
                self._formatted(value, path, functools.partial(_set_duration, into))
            case "google.protobuf.Timestamp":
                self._formatted(value, path, functools.partial(_set_time, into))
            case _:
                self.read_message(into, value, path=path)

    def _formatted(self, value: object, path: str, put: Callable[[object], None]) -> None:
        try:
            put(value)
        except ValueError as error:
            self._add(path, str(error))

    def _scalar(
        self, field: _Field, value: object, *, path: str, put: Callable[[Any], None]
    ) -> None:
        try:
            put(_scalar(field, value))
        except _WrongError as wrong:
            self._add(path, str(wrong))

    def _add(self, path: str, message: str) -> None:
        self.found.append(violations.Violation(field=path.removeprefix("."), message=message))


def _unknown(name: str, known: Mapping[str, object]) -> str:
    hint = violations.suggestion(name, known)
    return "unknown field" + (hint or f"; there are {', '.join(f'`{one}`' for one in known)}")


def _set_duration(into: Any, value: object) -> None:
    if not isinstance(value, str):
        raise _not(scalars.DURATION_FORM, value)
    milliseconds = scalars.parse_duration(value)
    into.seconds, rest = divmod(milliseconds, 1_000)
    into.nanos = rest * scalars.MILLISECOND


def _set_time(into: Any, value: object) -> None:
    if not isinstance(value, str):
        raise _not(scalars.TIME_FORM, value)
    into.seconds, into.nanos = divmod(scalars.parse_time(value), scalars.NANOSECONDS)


def _not(form: str, value: object) -> ValueError:
    return ValueError(f"must be {form}, is {documents.describe(value)}")


def _scalar(field: _Field, value: object) -> object:
    """The value that a field takes for a value of YAML.

    Raises:
        _WrongError: the field cannot take it.
    """
    if field.enum_type is not None:
        return _enum(field.enum_type, value)
    if field.type in _INTEGERS:
        return _integer(_INTEGERS[field.type], value)
    if field.type == _Field.TYPE_STRING:
        return _text(value)
    if field.type == _Field.TYPE_BYTES:
        return _bytes(value)
    if field.type == _Field.TYPE_BOOL:
        if isinstance(value, bool):
            return value
        raise _WrongError(f"must be true or false, is {documents.describe(value)}")
    if field.type == _Field.TYPE_DOUBLE:
        return _double(value)
    raise TypeError(f"no YAML form for the type of {field.full_name}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        quote = "; put it in quotes" if isinstance(value, bool | int | float) else ""
        raise _WrongError(f"must be text, is {documents.describe(value)}{quote}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise _WrongError("must be Unicode text, has half of a surrogate pair")
    return value


def _bytes(value: object) -> bytes:
    if not isinstance(value, str):
        raise _WrongError(f"must be base64, is {documents.describe(value)}")
    try:
        return base64.b64decode("".join(value.split()), validate=True)  # YAML may break long lines
    except ValueError as error:  # of bad base64, or of letters beyond ASCII
        raise _WrongError("must be base64, with the letters of RFC 4648, section 4") from error


def _integer(allowed: range, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _WrongError(f"must be a whole number, is {documents.describe(value)}")
    if value not in allowed:
        raise _WrongError(f"must be from {allowed.start} to {allowed.stop - 1}, is {value}")
    return value


def _double(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise _WrongError(f"must be a number, is {documents.describe(value)}")
    return float(value)


def _enum(enum: descriptor.EnumDescriptor, value: object) -> int:
    words = scalars.enum_words(enum)
    if isinstance(value, str) and value in words:
        return words[value]
    hint = violations.suggestion(value, words) if isinstance(value, str) else ""
    choices = ", ".join(words)
    raise _WrongError(f"must be one of {choices}, is {documents.describe(value)}{hint}")
