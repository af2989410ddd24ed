# SPDX-License-Identifier: Apache-2.0
"""The constraints that Envoy's protos state for one value, as functions of the value.

Source: https://github.com/bufbuild/protoc-gen-validate/blob/v1.2.1/README.md (constraint rules).
What is not known here is not checked: the gate must never be stricter than the client.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

Check = Callable[[Any], str | None]
"""Gives the rule that a value breaks, or None."""

_NANOS: Final = 1_000_000_000
_STRICT_NAME: Final = re.compile(r":?[0-9a-zA-Z!#$%&'*+-.^_|~`]+", re.ASCII)
_STRICT_VALUE: Final = re.compile("[^\x00-\x08\x0a-\x1f\x7f]*")
_LOOSE: Final = re.compile("[^\x00\x0a\x0d]*")
_HEADER_NAME: Final = 1  # KnownRegex.HTTP_HEADER_NAME


def number(rules: Any) -> list[Check]:
    """For all kinds of numbers; of durations, see `duration`."""
    checks = [*_only(rules), *_range(rules, lambda limit: limit, str)]
    return _unless_empty(rules, checks)


def duration(rules: Any) -> list[Check]:
    """Limits of a duration that is set."""
    return _range(rules, nanoseconds, lambda limit: str(limit.ToJsonString()), nanoseconds)


def nanoseconds(value: Any) -> int:
    """The length of a duration."""
    return int(value.seconds) * _NANOS + int(value.nanos)


def _range(
    rules: Any,
    read: Callable[[Any], Any],
    show: Callable[[Any], str],
    measure: Callable[[Any], Any] = lambda value: value,
) -> list[Check]:
    """``lt``, ``lte``, ``gt`` and ``gte``.

    A lower limit above the upper one means outside of both.
    """
    low, low_text = _limit(rules, ("gte", "gt"), read, show)
    high, high_text = _limit(rules, ("lte", "lt"), read, show)
    if low is None and high is None:
        return []
    above = _above(low, inclusive=rules.HasField("gte"))
    below = _below(high, inclusive=rules.HasField("lte"))
    if low is not None and high is not None and low >= high:
        text = f"must be {low_text} or {high_text}"
        return [lambda v: None if above(measure(v)) or below(measure(v)) else text]
    checks: list[Check] = []
    if low is not None:
        checks.append(lambda v: None if above(measure(v)) else f"must be {low_text}")
    if high is not None:
        checks.append(lambda v: None if below(measure(v)) else f"must be {high_text}")
    return checks


_WORDS: Final = {"gte": "at least", "gt": "more than", "lte": "at most", "lt": "less than"}


def _limit(
    rules: Any,
    names: tuple[str, ...],
    read: Callable[[Any], Any],
    show: Callable[[Any], str],
) -> tuple[Any, str]:
    for name in names:
        if rules.HasField(name):
            limit = getattr(rules, name)
            return read(limit), f"{_WORDS[name]} {show(limit)}"
    return None, ""


def _above(low: Any, *, inclusive: bool) -> Callable[[Any], bool]:
    return (lambda v: bool(v >= low)) if inclusive else (lambda v: bool(v > low))


def _below(high: Any, *, inclusive: bool) -> Callable[[Any], bool]:
    return (lambda v: bool(v <= high)) if inclusive else (lambda v: bool(v < high))


def _only(rules: Any) -> list[Check]:
    """``const``, ``in`` and ``not_in``, which mean the same for every kind of value."""
    checks: list[Check] = []
    if rules.HasField("const"):
        const = rules.const
        checks.append(lambda v: None if v == const else f"must be {const}")
    fields = rules.DESCRIPTOR.fields_by_name
    allowed = frozenset(getattr(rules, "in")) if "in" in fields else frozenset()
    if allowed:
        listed = ", ".join(sorted(map(str, allowed)))
        checks.append(lambda v: None if v in allowed else f"must be one of {listed}")
    barred = frozenset(rules.not_in) if "not_in" in fields else frozenset()
    if barred:
        listed_out = ", ".join(sorted(map(str, barred)))
        checks.append(lambda v: f"must not be one of {listed_out}" if v in barred else None)
    return checks


def boolean(rules: Any) -> list[Check]:
    """Only a constant."""
    return _only(rules)


def enumeration(rules: Any, known: frozenset[int]) -> list[Check]:
    """``defined_only`` beside what all values have; ``known`` are the numbers that are defined."""
    checks = _only(rules)
    if rules.defined_only:
        checks.append(lambda v: None if v in known else "must be a defined value")
    return checks


def text(rules: Any) -> list[Check]:
    """Strings: lengths in characters or bytes, parts, patterns, header names and values."""
    checks = [*_only(rules), *_lengths(rules, len, "characters", ("len", "min_len", "max_len"))]
    checks += _lengths(
        rules, lambda v: len(v.encode()), "bytes", ("len_bytes", "min_bytes", "max_bytes")
    )
    checks += _parts(rules, repr)
    checks += _patterns(rules)
    return _unless_empty(rules, checks)


def blob(rules: Any) -> list[Check]:
    """Bytes."""
    checks = [*_only(rules), *_lengths(rules, len, "bytes", ("len", "min_len", "max_len"))]
    return _unless_empty(rules, [*checks, *_parts(rules, repr)])


def _unless_empty(rules: Any, checks: list[Check]) -> list[Check]:
    if not rules.ignore_empty:
        return checks
    return [lambda v, check=check: check(v) if v else None for check in checks]  # type: ignore[misc]


def _lengths(
    rules: Any, measure: Callable[[Any], int], unit: str, names: tuple[str, str, str]
) -> list[Check]:
    exact, least, most = (
        int(getattr(rules, name)) if rules.HasField(name) else None for name in names
    )
    checks: list[Check] = []
    if exact is not None:
        checks.append(lambda v: None if measure(v) == exact else f"must have {exact} {unit}")
    if least is not None:
        checks.append(
            lambda v: None if measure(v) >= least else f"must have at least {least} {unit}"
        )
    if most is not None:
        checks.append(lambda v: None if measure(v) <= most else f"must have at most {most} {unit}")
    return checks


def _parts(rules: Any, show: Callable[[Any], str]) -> list[Check]:
    checks: list[Check] = []
    if rules.HasField("prefix"):
        prefix = rules.prefix
        checks.append(lambda v: None if v.startswith(prefix) else f"must begin with {show(prefix)}")
    if rules.HasField("suffix"):
        suffix = rules.suffix
        checks.append(lambda v: None if v.endswith(suffix) else f"must end with {show(suffix)}")
    if rules.HasField("contains"):
        part = rules.contains
        checks.append(lambda v: None if part in v else f"must contain {show(part)}")
    return checks


def _patterns(rules: Any) -> list[Check]:
    checks: list[Check] = []
    if rules.HasField("pattern"):
        pattern = rules.pattern
        # RE2's $ is the very end, Python's may be before a last line break.
        ours = re.compile(pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern)
        checks.append(lambda v: None if ours.search(v) else f"must match {pattern}")
    if rules.WhichOneof("well_known") == "well_known_regex":
        name = rules.well_known_regex == _HEADER_NAME
        strict = not rules.HasField("strict") or rules.strict
        known = (_STRICT_NAME if name else _STRICT_VALUE) if strict else _LOOSE
        what = "name" if name else "value"
        checks.append(lambda v: None if known.fullmatch(v) else f"must be a header {what}")
    return checks
