# SPDX-License-Identifier: Apache-2.0
"""Rules of optional numbers and times, which many sections of a message have.

Each takes the path of a message and the name of one of its fields, and gives what is wrong with it.
"""

from __future__ import annotations

from google.protobuf import message

from pilothouse.config import checks

_MAX_UINT32 = 2**32 - 1


def times(where: str, section: message.Message, *fields: str) -> checks.Found:
    """Durations greater than 0, where they are set."""
    for field in fields:
        if section.HasField(field):
            path = f"{where}.{_json_name(section, field)}"
            yield from checks.duration(path, getattr(section, field), positive=True)


def percent(where: str, section: message.Message, field: str, *, least: int = 0) -> checks.Found:
    """A percentage, where it is set."""
    yield from number(where, section, field, least=least, most=100)


def number(
    where: str, section: message.Message, field: str, *, least: int, most: int = _MAX_UINT32
) -> checks.Found:
    """A number in a range, where it is set."""
    value = getattr(section, field)
    if section.HasField(field) and not least <= value <= most:
        path = f"{where}.{_json_name(section, field)}"
        ends = f"at least {least}" if most == _MAX_UINT32 else f"from {least} to {most}"
        yield from checks.broken(path, f"must be {ends}, is {value}")


def _json_name(section: message.Message, field: str) -> str:
    return section.DESCRIPTOR.fields_by_name[field].json_name
