# SPDX-License-Identifier: Apache-2.0
"""A message as the mapping that YAML has for it, and what a message holds that we do not know."""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor, unknown_fields
from google.protobuf import message as protobuf

from pilothouse.config import reading, scalars

_Field = descriptor.FieldDescriptor


def write(message: protobuf.Message, *, zeros: bool = False) -> dict[str, Any]:
    """The mapping of a message: fields in the order of the proto, maps sorted by key.

    Args:
        message: Any message that `pilothouse.config.reading` could have filled.
        zeros: Write a number that is 0 and a text that is empty also where that equals "unset".
    """
    written: dict[str, Any] = {}
    for name, field in reading.fields_of(message.DESCRIPTOR).items():
        if _is_set(message, field) or (zeros and not field.is_repeated and not field.has_presence):
            written[name] = _value(getattr(message, field.name), field, zeros=zeros)
    return written


def _is_set(message: protobuf.Message, field: _Field) -> bool:
    if field.has_presence:
        return message.HasField(field.name)
    return bool(getattr(message, field.name))


def _value(value: Any, field: _Field, *, zeros: bool) -> Any:
    if reading.is_map(field):
        return {key: value[key] for key in sorted(value)}
    if field.is_repeated:
        return [_single(item, field, zeros=zeros) for item in value]
    return _single(value, field, zeros=zeros)


def _single(value: Any, field: _Field, *, zeros: bool) -> Any:
    if field.enum_type is not None:
        word = scalars.enum_word(field.enum_type, value)
        return value if word is None else word
    if field.type == _Field.TYPE_BYTES:
        return base64.b64encode(value).decode()
    if field.message_type is None:
        return value
    match field.message_type.full_name:
        case "google.protobuf.Duration":
            return _duration(value)
        case "google.protobuf.Timestamp":
            return scalars.format_time(value.seconds * scalars.NANOSECONDS + value.nanos)
        case _:
            return write(value, zeros=zeros)


def _duration(value: Any) -> str:
    milliseconds, rest = divmod(value.nanos, scalars.MILLISECOND)
    total = value.seconds * 1_000 + milliseconds
    if not rest and 0 <= total <= scalars.MAX_DURATION:
        return scalars.format_duration(total)
    # YAML cannot say it and validation refuses it. Show what it is.
    nanoseconds = value.seconds * scalars.NANOSECONDS + value.nanos
    sign = "-" if nanoseconds < 0 else ""
    seconds, fraction = divmod(abs(nanoseconds), scalars.NANOSECONDS)
    return f"{sign}{seconds}.{fraction:09d}s"


def unknown(message: protobuf.Message, *, path: str = "") -> Iterator[str]:
    """What a message holds that this build has no name for: each field number, each enum value.

    A newer peer wrote it, and it means something; who drops it changes what was meant.
    """
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    if known.ByteSize() == message.ByteSize() and not _has_enums(message.DESCRIPTOR):
        return  # as nearly always; a walk through all of it costs more than everything else here
    yield from _unknown(message, path=path)


@functools.cache
def _has_enums(message: descriptor.Descriptor) -> bool:
    return any(
        field.enum_type is not None
        or (field.message_type is not None and _has_enums(field.message_type))
        for field in message.fields
    )


def _unknown(message: protobuf.Message, *, path: str) -> Iterator[str]:
    where = path or "the object"
    fields: Any = unknown_fields.UnknownFieldSet(message)
    for number in sorted({one.field_number for one in fields}):
        yield f"{where}: unknown field number {number}"
    for field, value in message.ListFields():
        at = f"{path}.{field.json_name}" if path else str(field.json_name)
        if field.enum_type is not None:
            known = field.enum_type.values_by_number
            for number in value if field.is_repeated else (value,):
                if number not in known:
                    yield f"{at}: unknown value {number}"
        elif field.message_type is not None and not reading.is_map(field):
            if field.is_repeated:
                for index, item in enumerate(value):
                    yield from _unknown(item, path=f"{at}[{index}]")
            else:
                yield from _unknown(value, path=at)
