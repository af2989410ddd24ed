# SPDX-License-Identifier: Apache-2.0
"""The rules of the matches of a RouteRule."""

from __future__ import annotations

from pilothouse.api.config.v1alpha1 import matches_pb2
from pilothouse.config import checks, clients, paths, syntax

_CASED_PATHS = ("exact", "prefix", "string_prefix")
_CASED_HEADERS = ("exact", "prefix", "suffix", "contains")
_MAX_IN_RANGE = 2**63 - 2
_MAX_PARAMETER_NAME = 1_024
"""Envoy's limit."""


def check(where: str, match: matches_pb2.HttpMatch, parents: clients.Parents) -> checks.Found:
    """Every rule that a match breaks, in the order of its fields."""
    if match.HasField("path"):
        yield from _path(f"{where}.path", match.path)
    yield from checks.optional(f"{where}.method", match.method, syntax.method)
    for index, each in enumerate(match.headers):
        yield from header(f"{where}.headers[{index}]", each)
    for index, parameter in enumerate(match.query_parameters):
        yield from _query_parameter(f"{where}.queryParameters[{index}]", parameter)
    for index, cookie in enumerate(match.cookies):
        yield from _cookie(f"{where}.cookies[{index}]", cookie)
    if match.scheme not in ("", "http", "https"):
        yield from checks.broken(f"{where}.scheme", f"must be http or https, is {match.scheme!r}")
    if match.HasField("authority"):
        yield from _authority(f"{where}.authority", match.authority)
    yield from clients.check(where, match, parents)


def check_grpc(where: str, match: matches_pb2.GrpcMatch, parents: clients.Parents) -> checks.Found:
    """Every rule that a match of a gRPC route breaks, in the order of its fields."""
    yield from checks.optional(f"{where}.service", match.service, syntax.grpc_service)
    yield from checks.optional(f"{where}.method", match.method, syntax.grpc_method)
    for index, each in enumerate(match.headers):
        yield from header(f"{where}.headers[{index}]", each)
    if match.HasField("authority"):
        yield from _authority(f"{where}.authority", match.authority)
    yield from clients.check(where, match, parents)


def _path(where: str, path: matches_pb2.PathMatch) -> checks.Found:
    test = path.WhichOneof("test")
    match test:
        case "exact":
            yield from checks.broken(f"{where}.exact", paths.whole(path.exact))
        case "prefix":
            yield from checks.broken(f"{where}.prefix", paths.whole(path.prefix))
        case "regex":
            yield from checks.regex(f"{where}.regex", path.regex)
        case "string_prefix":
            yield from checks.broken(f"{where}.stringPrefix", paths.part(path.string_prefix))
        case "template":
            yield from checks.broken(f"{where}.template", paths.template(path.template))
        case None:
            choices = "`exact`, `prefix`, `regex`, `stringPrefix` or `template`"
            yield from checks.broken(where, f"one of {choices} is required")
    if path.ignore_case and test is not None and test not in _CASED_PATHS:
        only = f"is for `exact`, `prefix` and `stringPrefix` only, not for `{test}`"
        yield from checks.broken(f"{where}.ignoreCase", only)


def header(where: str, header: matches_pb2.HeaderMatch) -> checks.Found:
    """Every rule that the test of a header breaks."""
    yield from checks.required(f"{where}.name", header.name, syntax.header_name)
    test = header.WhichOneof("test")
    match test:
        case "exact":
            yield from checks.broken(f"{where}.exact", syntax.text(header.exact))
        case "prefix" | "suffix" | "contains":
            yield from _part(f"{where}.{test}", getattr(header, test))
        case "regex":
            yield from checks.regex(f"{where}.regex", header.regex)
        case "range":
            yield from _range(f"{where}.range", header.range)
        case "present":
            pass
        case None:
            choices = "`exact`, `prefix`, `regex`, `present`, `suffix`, `contains` or `range`"
            yield from checks.broken(where, f"one of {choices} is required")
    if header.ignore_case and test is not None and test not in _CASED_HEADERS:
        only = f"is for `exact`, `prefix`, `suffix` and `contains` only, not for `{test}`"
        yield from checks.broken(f"{where}.ignoreCase", only)
    if header.invert and test == "present":
        yield from checks.broken(f"{where}.invert", "is not for `present`; use its other value")
    elif header.invert and test == "exact" and not header.exact:
        yield from checks.broken(f"{where}.invert", "is not for an empty `exact`")


def _part(where: str, value: str) -> checks.Found:
    if not value:
        yield from checks.broken(where, "must not be empty; use `present`")
    yield from checks.broken(where, syntax.text(value))


def _range(where: str, wanted: matches_pb2.IntegerRange) -> checks.Found:
    if wanted.max > _MAX_IN_RANGE:
        yield from checks.broken(f"{where}.max", f"must be at most {_MAX_IN_RANGE}")
    if wanted.HasField("min") and wanted.HasField("max") and wanted.max < wanted.min:
        text = f"must not be below `min`, {wanted.min}, is {wanted.max}"
        yield from checks.broken(f"{where}.max", text)


def _parameter_name(value: str) -> str | None:
    if len(value.encode()) > _MAX_PARAMETER_NAME:
        return f"must be at most {_MAX_PARAMETER_NAME} bytes in UTF-8, is {len(value.encode())}"
    return syntax.text(value)


def _query_parameter(where: str, parameter: matches_pb2.QueryParameterMatch) -> checks.Found:
    yield from checks.required(f"{where}.name", parameter.name, _parameter_name)
    match parameter.WhichOneof("test"):
        case "exact":
            yield from checks.broken(f"{where}.exact", syntax.text(parameter.exact))
        case "prefix":
            yield from _part(f"{where}.prefix", parameter.prefix)
        case "regex":
            yield from checks.regex(f"{where}.regex", parameter.regex)
        case "present":
            pass
        case None:
            choices = "`exact`, `prefix`, `regex` or `present`"
            yield from checks.broken(where, f"one of {choices} is required")


def _cookie(where: str, cookie: matches_pb2.CookieMatch) -> checks.Found:
    yield from checks.required(f"{where}.name", cookie.name, syntax.cookie_name)
    match cookie.WhichOneof("test"):
        case "exact":
            yield from checks.broken(f"{where}.exact", syntax.cookie_value(cookie.exact))
        case "prefix" if not cookie.prefix:
            yield from checks.broken(f"{where}.prefix", "must not be empty; use `present`")
        case "prefix":
            yield from checks.broken(f"{where}.prefix", syntax.cookie_value(cookie.prefix))
        case "present":
            pass
        case None:
            choices = "`exact`, `prefix` or `present`"
            yield from checks.broken(where, f"one of {choices} is required")


def _authority(where: str, host: matches_pb2.HostMatch) -> checks.Found:
    test = host.WhichOneof("test")
    match test:
        case "exact":
            yield from checks.required(f"{where}.exact", host.exact, syntax.redirect_host)
        case "prefix" | "suffix":
            value = getattr(host, test)
            if not value:
                yield from checks.broken(f"{where}.{test}", "must not be empty")
            yield from checks.broken(f"{where}.{test}", syntax.text(value))
        case "regex":
            yield from checks.regex(f"{where}.regex", host.regex)
        case None:
            choices = "`exact`, `prefix`, `suffix` or `regex`"
            yield from checks.broken(where, f"one of {choices} is required")
