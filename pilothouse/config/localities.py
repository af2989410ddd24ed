# SPDX-License-Identifier: Apache-2.0
"""The rules of what a DestinationPolicy says of places that it can break by itself."""

from __future__ import annotations

import re

from pilothouse.api.config.v1alpha1 import destination_policy_pb2
from pilothouse.config import checks, ranges, syntax

_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PLACE = re.compile(rf"\*|{_NAME.pattern}(?:/{_NAME.pattern}){{0,2}}")
_MAX_WEIGHT = 1000
_MAX_PLACES = 100
_MAX_LABELS = 10


def check(where: str, section: destination_policy_pb2.LocalityPolicy) -> checks.Found:
    """Every rule that the section breaks, in the order of its fields."""
    yield from _failover(f"{where}.failover", section.failover)
    if section.HasField("zone_aware"):
        yield from _zone_aware(f"{where}.zoneAware", section.zone_aware)
    if section.HasField("distribution"):
        yield from _distribution(f"{where}.distribution.shares", section.distribution)


def _zone_aware(where: str, section: destination_policy_pb2.ZoneAwareness) -> checks.Found:
    yield from ranges.percent(where, section, "percent")
    yield from ranges.number(where, section, "min_endpoints", least=1)
    yield from _failover(f"{where}.failover", section.failover)


def _failover(where: str, section: destination_policy_pb2.LocalityFailover) -> checks.Found:
    seen: dict[object, str] = {}
    for index, region in enumerate(section.regions):
        at, start = f"{where}.regions[{index}]", getattr(region, "from")
        yield from checks.required(f"{at}.from", start, _region)
        if start:
            yield from checks.unique(seen, f"{at}.from", start, what="region")
        yield from checks.required(f"{at}.to", region.to, _region)
        if start and start == region.to:
            yield from checks.broken(f"{at}.to", "must be another region than from")
    yield from _labels(where, section)


def _labels(where: str, section: destination_policy_pb2.LocalityFailover) -> checks.Found:
    at = f"{where}.labels"
    if section.labels and section.regions:
        yield from checks.broken(at, "must not be set together with regions")
    if len(section.labels) > _MAX_LABELS:
        wrong = f"must have at most {_MAX_LABELS} entries, has {len(section.labels)}"
        yield from checks.broken(at, wrong)
    seen: dict[object, str] = {}
    for index, one in enumerate(section.labels):
        name, _, value = one.partition("=")
        yield from checks.required(f"{at}[{index}]", name, syntax.label_key)
        yield from checks.optional(f"{at}[{index}]", value, syntax.label_value)
        if name:
            yield from checks.unique(seen, f"{at}[{index}]", name, what="label")


def _distribution(where: str, section: destination_policy_pb2.LocalityDistribution) -> checks.Found:
    if not 1 <= len(section.shares) <= _MAX_PLACES:
        wrong = f"must have 1 to {_MAX_PLACES} entries, has {len(section.shares)}"
        yield from checks.broken(where, wrong)
    seen: dict[object, str] = {}
    for index, one in enumerate(section.shares):
        at, start = f"{where}[{index}]", getattr(one, "from")
        yield from checks.required(f"{at}.from", start, _place)
        if start:
            yield from checks.unique(seen, f"{at}.from", start, what="place")
        if not 1 <= len(one.to) <= _MAX_PLACES:
            wrong = f"must have 1 to {_MAX_PLACES} entries, has {len(one.to)}"
            yield from checks.broken(f"{at}.to", wrong)
        elif not any(one.to.values()):
            yield from checks.broken(f"{at}.to", "must have a weight greater than 0")
        for place in sorted(one.to):
            yield from checks.broken(f"{at}.to[{place}]", _place(place))
            if one.to[place] > _MAX_WEIGHT:
                wrong = f"must be at most {_MAX_WEIGHT}, is {one.to[place]}"
                yield from checks.broken(f"{at}.to[{place}]", wrong)


def _region(value: str) -> str | None:
    return None if _NAME.fullmatch(value) else f"must be the name of a region, is {value!r}"


def _place(value: str) -> str | None:
    if _PLACE.fullmatch(value):
        return None
    return f"must be REGION, REGION/ZONE, REGION/ZONE/SUB-ZONE or *, is {value!r}"
