# SPDX-License-Identifier: Apache-2.0
"""How single values are written in YAML: plain scalars, durations, times, enums.

Plain scalars mean what ``kubectl`` takes them for, with one difference: only ``true`` and ``false``
are booleans. YAML 1.1 would also make booleans of ``yes``, ``no``, ``on`` and ``off``; here they
stay the words they look like. Dates stay text, and ``12:30`` is no number in base 60.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Mapping

from google.protobuf import descriptor

NANOSECONDS = 1_000_000_000
MILLISECOND = 1_000_000
"""Nanoseconds in a millisecond."""

Plain = str | int | float | bool | None

_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F_]+)|0[bB]([01_]+)|0o?([0-7_]+)|([0-9][0-9_]*))")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"([-+]?)\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def resolve(text: str) -> Plain:
    """The value of a plain (unquoted) scalar."""
    if text in _WORDS:
        return _WORDS[text]
    # Addresses are the bulk of a large mesh, and told from numbers in a fifth of the time.
    if text[0] not in "0123456789+-." or text.count(".") > 1:
        return text
    number = _INTEGER.fullmatch(text)
    if number is not None and len(text) <= 64:  # longer ones are no numbers anybody means
        return _integer(number, text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if special := _SPECIAL_FLOAT.fullmatch(text):
        return float("nan") if special.group(1) is None else float(special.group(1) + "inf")
    return text


def _integer(number: re.Match[str], text: str) -> int | str:
    sign, hexadecimal, binary, octal, decimal = number.groups()
    for digits, base in ((hexadecimal, 16), (binary, 2), (octal, 8), (decimal, 10)):
        plain = (digits or "").replace("_", "")
        if plain:
            return int(sign + plain, base)
    return text  # underscores alone


# Gateway API's GEP-2257: a subset of what Go parses. No sign, no fraction, at most four parts of
# at most five digits.
_DURATION = re.compile(r"(?:[0-9]{1,5}(?:h|m|s|ms)){1,4}")
_DURATION_PART = re.compile(r"([0-9]+)(h|ms|m|s)")
DURATION_FORM = "a duration such as 500ms, 2s or 1m30s"
_UNITS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
MAX_DURATION = 99_999 * _UNITS["h"] + 59 * _UNITS["m"] + 59 * _UNITS["s"] + 999
"""In milliseconds: ``99999h59m59s999ms``, the longest that the syntax of a duration can say."""


def parse_duration(text: str) -> int:
    """Milliseconds of a duration such as ``500ms``, ``2s`` or ``1m30s``.

    Raises:
        ValueError: the text is none; its message says how one is written.
    """
    if not _DURATION.fullmatch(text):
        raise ValueError(f"must be {DURATION_FORM}: whole numbers with h, m, s or ms, is {text!r}")
    total = sum(int(count) * _UNITS[unit] for count, unit in _DURATION_PART.findall(text))
    if total > MAX_DURATION:
        raise ValueError(f"must be at most {format_duration(MAX_DURATION)}, is {text!r}")
    return total


def format_duration(milliseconds: int) -> str:
    """The shortest way to write it: parts in order, none that is 0; ``0s`` for no time at all."""
    parts = []
    rest = milliseconds
    for unit in ("h", "m", "s", "ms"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


# RFC 3339, section 5.6.
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:[Zz]|([+-][0-9]{2}:[0-9]{2}))"
)
MAX_TIME = 253_402_300_799
"""The last second of the year 9999, in seconds since 1970: the end of RFC 3339."""
TIME_FORM = "a time as in RFC 3339, 2026-01-31T12:00:00Z"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def parse_time(text: str) -> int:
    """Nanoseconds since 1970 of an RFC 3339 time.

    Raises:
        ValueError: the text is none, or is before 1970; its message says how one is written.
    """
    wrong = f"must be {TIME_FORM}, is {text!r}"
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(wrong)
    date, clock, fraction, offset = match.groups()
    try:
        moment = dt.datetime.fromisoformat(f"{date}T{clock}{offset or '+00:00'}")
    except ValueError as error:
        raise ValueError(wrong) from error
    seconds = (moment - _EPOCH) // dt.timedelta(seconds=1)
    if seconds < 0:
        raise ValueError(f"must not be before 1970, is {text!r}")
    return seconds * NANOSECONDS + int((fraction or "").ljust(9, "0"))


def format_time(nanoseconds: int) -> str:
    """RFC 3339 in UTC, with as many decimals as are needed."""
    seconds, rest = divmod(nanoseconds, NANOSECONDS)
    moment = _EPOCH + dt.timedelta(seconds=seconds)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


@functools.cache
def enum_words(enum: descriptor.EnumDescriptor) -> Mapping[str, int]:
    """The words of an enum as YAML writes them, and their numbers, in the order of declaration.

    Without the prefix, and without the unspecified value: who means that leaves the field out.
    """
    unspecified = enum.values_by_number[0].name
    prefix = unspecified.removesuffix("UNSPECIFIED")
    return {
        value.name.removeprefix(prefix): value.number for value in enum.values if value.number != 0
    }


def enum_word(enum: descriptor.EnumDescriptor, number: int) -> str | None:
    """The word of one value; None for the unspecified value and for a number not in the enum."""
    for word, candidate in enum_words(enum).items():
        if candidate == number:
            return word
    return None
