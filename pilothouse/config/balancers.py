# SPDX-License-Identifier: Apache-2.0
"""The rules of a DestinationPolicy's load balancer that it can break by itself."""

from __future__ import annotations

import math

from pilothouse.api.config.v1alpha1 import destination_policy_pb2
from pilothouse.config import checks, ranges, scalars, syntax

_RING_HASH = destination_policy_pb2.LoadBalancer.POLICY_RING_HASH
_MAGLEV = destination_policy_pb2.LoadBalancer.POLICY_MAGLEV
_WARMING = (
    destination_policy_pb2.LoadBalancer.POLICY_UNSPECIFIED,
    destination_policy_pb2.LoadBalancer.POLICY_LEAST_REQUEST,
    destination_policy_pb2.LoadBalancer.POLICY_ROUND_ROBIN,
)
_SAME_SITE_NONE = destination_policy_pb2.HashCookie.SAME_SITE_NONE
_MAX_RING = 8_388_608
_MAX_TABLE = 5_000_011


def check(where: str, section: destination_policy_pb2.LoadBalancer) -> checks.Found:
    """Every rule that the section breaks, in the order of its fields."""
    yield from ranges.percent(where, section, "min_healthy_percent")
    hashing = hashes(section)
    if hashing and not section.hash_by:
        needed = "at least one is required when the policy is RING_HASH or MAGLEV"
        yield from checks.broken(f"{where}.hashBy", needed)
    if section.hash_by and not hashing:
        needless = "must not be set unless the policy is RING_HASH or MAGLEV"
        yield from checks.broken(f"{where}.hashBy", needless)
    for index, key in enumerate(section.hash_by):
        yield from _hash_key(f"{where}.hashBy[{index}]", key)
    if section.HasField("ring_min_size") and section.policy != _RING_HASH:
        needless = "must not be set unless the policy is RING_HASH"
        yield from checks.broken(f"{where}.ringMinSize", needless)
    yield from ranges.number(where, section, "ring_min_size", least=1, most=_MAX_RING)
    if section.HasField("maglev_table_size"):
        at = f"{where}.maglevTableSize"
        if section.policy != _MAGLEV:
            yield from checks.broken(at, "must not be set unless the policy is MAGLEV")
        size = section.maglev_table_size
        if size > _MAX_TABLE or not _is_prime(size):
            wrong = f"must be a prime number of at most {_MAX_TABLE}, is {size}"
            yield from checks.broken(at, wrong)
    if section.HasField("warmup"):
        yield from _warmup(f"{where}.warmup", section)


def hashes(section: destination_policy_pb2.LoadBalancer) -> bool:
    """Tell whether the key of a request chooses the endpoint."""
    return section.policy in (_RING_HASH, _MAGLEV)


def _warmup(where: str, section: destination_policy_pb2.LoadBalancer) -> checks.Found:
    if section.policy not in _WARMING:
        needless = "must not be set unless the policy is LEAST_REQUEST or ROUND_ROBIN"
        yield from checks.broken(where, needless)
    warmup = section.warmup
    if not warmup.HasField("duration"):
        yield from checks.broken(f"{where}.duration", "is required")
    yield from ranges.times(where, warmup, "duration")
    yield from ranges.percent(where, warmup, "min_percent", least=1)
    if warmup.HasField("aggression") and not 0 < warmup.aggression < math.inf:
        wrong = f"must be greater than 0, is {warmup.aggression:g}"
        yield from checks.broken(f"{where}.aggression", wrong)


def _hash_key(where: str, one: destination_policy_pb2.HashKey) -> checks.Found:
    match one.WhichOneof("key"):
        case "header":
            yield from checks.required(f"{where}.header", one.header, syntax.header_name)
        case "query_parameter":
            at = f"{where}.queryParameter"
            yield from checks.required(at, one.query_parameter, syntax.text)
        case "cookie":
            yield from _cookie(f"{where}.cookie", one.cookie)
        case "source_ip":
            if not one.source_ip:
                yield from checks.broken(f"{where}.sourceIp", "must be true")
        case _:
            kinds = "one of header, cookie, queryParameter, sourceIp is required"
            yield from checks.broken(where, kinds)


def _cookie(where: str, cookie: destination_policy_pb2.HashCookie) -> checks.Found:
    yield from checks.required(f"{where}.name", cookie.name, syntax.cookie_name)
    if cookie.HasField("ttl"):
        yield from checks.duration(f"{where}.ttl", cookie.ttl)
        if checks.in_nanoseconds(cookie.ttl) % scalars.NANOSECONDS:
            yield from checks.broken(f"{where}.ttl", "must be whole seconds")
    yield from checks.optional(f"{where}.path", cookie.path, syntax.path)
    yield from checks.optional(f"{where}.domain", cookie.domain, syntax.host)
    for field in ("domain", "same_site", "secure", "partitioned"):
        if getattr(cookie, field) and not cookie.HasField("ttl"):
            name = cookie.DESCRIPTOR.fields_by_name[field].json_name
            yield from checks.broken(f"{where}.{name}", "must not be set without ttl")
    # A browser drops such a cookie (RFC 6265bis).
    needing = [("sameSite NONE", cookie.same_site == _SAME_SITE_NONE)]
    needing.append(("partitioned", cookie.partitioned))
    for what, needed in needing:
        if needed and not cookie.secure:
            yield from checks.broken(f"{where}.secure", f"must be true with {what}")


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % factor for factor in range(2, math.isqrt(number) + 1))
