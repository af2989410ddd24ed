# SPDX-License-Identifier: Apache-2.0
"""What the rules of several kinds share: each generator gives the violations of one field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from google.protobuf import duration_pb2

from pilothouse.config import regexes, scalars, syntax, violations

Found = Iterator[violations.Violation]


def broken(field: str, message: str | None) -> Found:
    """The violation of a field, if there is anything wrong."""
    if message is not None:
        yield violations.Violation(field=field, message=message)


def required(field: str, value: str, rule: syntax.Rule) -> Found:
    """A text that must be there."""
    yield from broken(field, rule(value) if value else "is required")


def optional(field: str, value: str, rule: syntax.Rule) -> Found:
    """A text that may be left out."""
    if value:
        yield from broken(field, rule(value))


def required_port(field: str, value: int, seen: dict[object, str]) -> Found:
    """A port that must be there and that no other has; ``seen`` keeps who had which first."""
    if not value:
        yield from broken(field, f"is required: a number from 1 to {syntax.MAX_PORT}")
    else:
        yield from broken(field, syntax.port(value))
        yield from unique(seen, field, value, what="port")


def labels(field: str, mapping: Mapping[str, str]) -> Found:
    """A set of labels."""
    for key in sorted(mapping):
        where = f"{field}[{key}]"
        yield from broken(where, syntax.label_key(key))
        yield from broken(where, syntax.label_value(mapping[key]))


def hosts(field: str, values: Iterable[str], rule: syntax.Rule) -> Found:
    """A list of hosts, none of which is there twice in whatever case."""
    seen: dict[str, str] = {}
    for index, value in enumerate(values):
        where = f"{field}[{index}]"
        yield from broken(where, rule(value))
        first = seen.setdefault(value.lower(), where)
        if first != where:
            yield from broken(where, f"is the same as {first}")


def unique(seen: dict[object, str], field: str, value: object, *, what: str) -> Found:
    """A value that no other of its kind may have; ``seen`` keeps who had which first."""
    first = seen.setdefault(value, field)
    if first != field:
        yield from broken(field, f"the {what} {value} is taken by {first}")


def regex(field: str, pattern: str) -> Found:
    """An RE2 expression."""
    if not pattern:  # Envoy refuses it, and it would match next to nothing
        yield from broken(field, "must not be empty")
    elif wrong := regexes.problem(pattern):
        yield from broken(field, f"must be an RE2 expression, {pattern!r} is none: {wrong}")


def duration(field: str, value: duration_pb2.Duration, *, positive: bool = False) -> Found:
    """A time that the YAML form can say: whole milliseconds, not negative, with an upper limit."""
    nanoseconds = in_nanoseconds(value)
    longest = scalars.MAX_DURATION * scalars.MILLISECOND
    if nanoseconds < 0:
        yield from broken(field, "must not be negative")
    elif positive and not nanoseconds:
        yield from broken(field, "must be greater than 0s")
    elif nanoseconds % scalars.MILLISECOND:
        yield from broken(field, "must be whole milliseconds")
    elif nanoseconds > longest:
        most = scalars.format_duration(scalars.MAX_DURATION)
        yield from broken(field, f"must be at most {most}")


def percent(field: str, value: float) -> Found:
    """A share of 100, in steps that a million can say."""
    if not 0 <= value <= 100:
        yield from broken(field, f"must be from 0 to 100, is {value:g}")
    elif round(value * 10_000) / 10_000 != value:
        yield from broken(field, f"must be in steps of 0.0001, is {value!r}")


def in_nanoseconds(value: duration_pb2.Duration) -> int:
    """The length of a duration."""
    return value.seconds * scalars.NANOSECONDS + value.nanos
