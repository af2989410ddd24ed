# SPDX-License-Identifier: Apache-2.0
"""The rules of what a RouteRule does with requests and answers."""

from __future__ import annotations

import re

from pilothouse.api.config.v1alpha1 import http_actions_pb2, matches_pb2, route_rule_pb2
from pilothouse.config import checks, http_matches, regexes, syntax

MAX_ATTEMPTS = 10
MAX_BODY = 4_096
"""Bytes of a direct response: Envoy's limit."""
REDIRECT_CODES = (301, 302, 303, 307, 308)
RETRY_CONDITIONS = frozenset(
    {
        # https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/router_filter
        # x-envoy-retry-on
        "5xx",
        "gateway-error",
        "reset",
        "reset-before-request",
        "connect-failure",
        "envoy-ratelimited",
        "retriable-4xx",
        "refused-stream",
        "retriable-status-codes",
        "retriable-headers",
        "http3-post-connect-failure",
        # x-envoy-retry-grpc-on
        "cancelled",
        "deadline-exceeded",
        "internal",
        "resource-exhausted",
        "unavailable",
    }
)
_BODILESS = (204, 304)
_REFERENCE = re.compile(r"\\(.?)", re.DOTALL)


def redirect(where: str, route: route_rule_pb2.HttpRoute) -> checks.Found:
    """Every rule that a redirect breaks."""
    redirect = route.redirect
    path = redirect.path or redirect.prefix
    if not (redirect.scheme or redirect.host or redirect.HasField("port") or path):
        one = "one of `scheme`, `host`, `port`, `path` or `prefix` is required"
        yield from checks.broken(where, f"{one}; else it leads back to where it comes from")
    if redirect.scheme not in ("", "http", "https"):
        yield from checks.broken(
            f"{where}.scheme", f"must be http or https, is {redirect.scheme!r}"
        )
    yield from checks.optional(f"{where}.host", redirect.host, syntax.redirect_host)
    if redirect.HasField("port"):
        yield from checks.broken(f"{where}.port", syntax.port(redirect.port))
    yield from checks.optional(f"{where}.path", redirect.path, syntax.path)
    if redirect.prefix:
        if redirect.path:
            both = "`path` and `prefix` exclude each other; set one of them"
            yield from checks.broken(where, both)
        yield from _prefix(f"{where}.prefix", redirect.prefix, route)
    if redirect.HasField("code") and redirect.code not in REDIRECT_CODES:
        codes = ", ".join(map(str, REDIRECT_CODES))
        yield from checks.broken(f"{where}.code", f"must be one of {codes}, is {redirect.code}")


def retry(where: str, route: route_rule_pb2.HttpRoute) -> checks.Found:
    """Every rule that retries break."""
    retry = route.retry
    if retry.attempts > MAX_ATTEMPTS:
        most = f"must be at most {MAX_ATTEMPTS}, is {retry.attempts}"
        yield from checks.broken(f"{where}.attempts", most)
    if retry.HasField("per_try_timeout"):
        yield from checks.duration(f"{where}.perTryTimeout", retry.per_try_timeout)
        whole = checks.in_nanoseconds(route.timeout)
        if 0 < whole < checks.in_nanoseconds(retry.per_try_timeout):
            longer = "must not be longer than the timeout of the route"
            yield from checks.broken(f"{where}.perTryTimeout", longer)
    yield from _conditions(where, retry)
    for index, header in enumerate(retry.response_headers):
        yield from http_matches.header(f"{where}.responseHeaders[{index}]", header)
    if retry.HasField("back_off"):
        yield from _back_off(f"{where}.backOff", retry.back_off)
    if retry.HasField("per_try_idle_timeout"):
        idle = retry.per_try_idle_timeout
        yield from checks.duration(f"{where}.perTryIdleTimeout", idle, positive=True)


def _conditions(where: str, retry: route_rule_pb2.HttpRetry) -> checks.Found:
    needed = {
        "retriable-status-codes": ("statusCodes", retry.status_codes),
        "retriable-headers": ("responseHeaders", retry.response_headers),
    }
    for index, condition in enumerate(retry.retry_on):
        if condition not in RETRY_CONDITIONS:
            known = ", ".join(sorted(RETRY_CONDITIONS))
            message = f"must be one of {known}, is {condition!r}"
            yield from checks.broken(f"{where}.retryOn[{index}]", message)
        elif condition in needed and not needed[condition][1]:
            missing = f"needs `{needed[condition][0]}`"
            yield from checks.broken(f"{where}.retryOn[{index}]", missing)
    seen: dict[object, str] = {}
    for index, code in enumerate(retry.status_codes):
        field = f"{where}.statusCodes[{index}]"
        if not 100 <= code <= 599:
            yield from checks.broken(field, f"must be from 100 to 599, is {code}")
        yield from checks.unique(seen, field, code, what="status")


def _back_off(where: str, back_off: route_rule_pb2.RetryBackOff) -> checks.Found:
    yield from checks.duration(f"{where}.base", back_off.base, positive=True)
    if back_off.HasField("max"):
        yield from checks.duration(f"{where}.max", back_off.max)
        if checks.in_nanoseconds(back_off.max) < checks.in_nanoseconds(back_off.base):
            yield from checks.broken(f"{where}.max", "must not be less than `base`")


def direct_response(where: str, response: http_actions_pb2.DirectResponse) -> checks.Found:
    """Every rule that a direct response breaks."""
    wrong = syntax.status(response.status) if response.status else "is required"
    yield from checks.broken(f"{where}.status", wrong)
    if response.body and response.body_bytes:
        both = "`body` and `bodyBytes` exclude each other; set one of them"
        yield from checks.broken(where, both)
    yield from _body(f"{where}.body", response.body.encode(), response.status, " in UTF-8")
    yield from _body(f"{where}.bodyBytes", response.body_bytes, response.status)


def _body(where: str, body: bytes, status: int, encoding: str = "") -> checks.Found:
    if len(body) > MAX_BODY:
        too_long = f"must be at most {MAX_BODY} bytes{encoding}, is {len(body)}"
        yield from checks.broken(where, too_long)
    if body and status in _BODILESS:
        yield from checks.broken(where, f"must be empty for the status {status}")


def rewrite(where: str, route: route_rule_pb2.HttpRoute) -> checks.Found:
    """Every rule that a rewrite breaks."""
    rewrite = route.rewrite
    if route.HasField("redirect") or route.HasField("direct_response"):
        yield from checks.broken(where, "is for requests that are sent on")
    test, authority = rewrite.WhichOneof("path"), rewrite.WhichOneof("authority")
    match test:
        case "prefix":
            yield from _prefix(f"{where}.prefix", rewrite.prefix, route)
        case "full":
            yield from checks.broken(f"{where}.full", syntax.path(rewrite.full))
        case "regex":
            yield from _regex(f"{where}.regex", rewrite.regex)
        case "template":
            yield from _template(f"{where}.template", rewrite.template, route)
        case None if authority is None:
            choices = "`prefix`, `full`, `regex`, `template`, `host` or `destinationHost`"
            yield from checks.broken(where, f"one of {choices} is required")
        case None:
            pass
    if authority == "host":
        yield from checks.required(f"{where}.host", rewrite.host, syntax.authority)


def _prefix(where: str, value: str, route: route_rule_pb2.HttpRoute) -> checks.Found:
    yield from checks.broken(where, syntax.path(value))
    for index, match in enumerate(route.matches):
        if match.path.WhichOneof("test") not in (None, "prefix", "string_prefix"):
            needed = f"needs a prefix to replace; matches[{index}].path has none"
            yield from checks.broken(where, needed)


def _regex(where: str, regex: http_actions_pb2.RegexRewrite) -> checks.Found:
    yield from checks.regex(f"{where}.pattern", regex.pattern)
    yield from checks.broken(f"{where}.substitution", syntax.text(regex.substitution))
    groups = regexes.groups(regex.pattern)
    for reference in _REFERENCE.findall(regex.substitution):
        if reference.isdecimal() and reference.isascii():
            if int(reference) > groups:
                none = f"\\{reference} stands for no group; the pattern has {groups}"
                yield from checks.broken(f"{where}.substitution", none)
        elif reference != "\\":
            known = "may have a backslash before a digit or a backslash only"
            yield from checks.broken(f"{where}.substitution", known)


def _template(where: str, value: str, route: route_rule_pb2.HttpRoute) -> checks.Found:
    yield from checks.broken(where, syntax.template_rewrite(value))
    wanted = set(syntax.template_names(value))
    for index, match in enumerate(route.matches or (matches_pb2.HttpMatch(),)):
        missing = sorted(wanted - set(syntax.template_names(match.path.template)))
        if not match.path.template:
            needed = "needs a template to take names from"
            yield from checks.broken(where, f"{needed}; matches[{index}].path has none")
        elif missing:
            names = ", ".join(f"{{{name}}}" for name in missing)
            yield from checks.broken(where, f"matches[{index}].path.template has no {names}")
