# SPDX-License-Identifier: Apache-2.0
"""What a route of a RouteRule does with a request, for the reference matcher.

Written from the comments of route_rule.proto and http_actions.proto.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from tests.support import reference_conditions as conditions
from tests.support import reference_hosts as hosts
from tests.support import reference_values as values

_DEFAULT_RETRY = ("connect-failure", "refused-stream")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def apply(
    world: hosts.World,
    site: hosts.Site,
    rule: values.Manifest | None,
    name: str,
    route: values.Manifest,
    match: values.Manifest,
    arrived: conditions.Arrived,
) -> values.Verdict:
    """What becomes of a request that a route takes by a match.

    Args:
        world: All objects.
        site: Whose requests these are.
        rule: The route's rule; None for the route after all rules.
        name: The route's name.
        route: The route.
        match: The match by which it takes the request; empty when it has none.
        arrived: The request.
    """
    cors = "cors" in route
    limit = route.get("maxRequestBytes")
    if "directResponse" in route or "redirect" in route:
        answer = route.get("directResponse", {})
        redirect = route.get("redirect")
        return values.Verdict(
            route=name,
            status=answer.get("status") or (redirect or {}).get("code", 302),
            body=answer.get("body", "") if redirect is None else None,
            location="" if redirect is None else _location(redirect, match, arrived),
            response_headers=values.changed((), route.get("responseHeaders", {})),
            fault=_fault(route, arrived),
            cors=cors,
            max_request_bytes=limit,
        )
    shares, missing = _shares(world, site, rule, route, arrived)
    if all(share.target == values.NOWHERE for share in shares):
        return values.Verdict(
            route=name,
            status=max(missing, default=500),
            response_headers=values.changed((), route.get("responseHeaders", {})),
            fault=_fault(route, arrived),
            cors=cors,
            max_request_bytes=limit,
        )
    path, host = _rewritten(route.get("rewrite", {}), match, arrived)
    return values.Verdict(
        route=name,
        shares=shares,
        mirrors=_mirrors(world, site, rule, route),
        path=path,
        host=host,
        timeout_ms=milliseconds(route.get("timeout", "0s")),
        retry=_retry(route.get("retry", {})),
        fault=_fault(route, arrived),
        cors=cors,
        max_request_bytes=limit,
    )


def _shares(
    world: hosts.World,
    site: hosts.Site,
    rule: values.Manifest | None,
    route: values.Manifest,
    arrived: conditions.Arrived,
) -> tuple[dict[values.Share, Fraction], list[int]]:
    """Shares by weight, and the statuses of those that lead nowhere."""
    found: dict[values.Share, int] = {}
    missing = []
    sent = values.watched(arrived.request.headers)
    for destination in route.get("destinations") or [{}]:
        weight = destination.get("weight", 1)
        if not weight:
            continue
        target, endpoints, status = _target(world, site, rule, destination)
        changes = [
            [one.get(side, {}) for one in (route, destination)]
            for side in ("requestHeaders", "responseHeaders")
        ]
        share = values.Share(
            target=target,
            endpoints=endpoints,
            request_headers=() if status else values.changed(sent, *changes[0]),
            response_headers=() if status else values.changed(values.ANSWER, *changes[1]),
        )
        missing += [status] if status else []
        found[share] = found.get(share, 0) + weight
    total = sum(found.values())
    return {share: Fraction(weight, total) for share, weight in found.items()}, missing


def _target(
    world: hosts.World,
    site: hosts.Site,
    rule: values.Manifest | None,
    destination: values.Manifest,
) -> tuple[str, tuple[str, ...] | None, int]:
    """The target with its endpoints, and the status of requests for one that there is not."""
    if not destination.get("service") and not destination.get("externalService"):
        # The parent itself.
        assert site.parent is not None
        if site.parent["spec"].get("throughEgressGateway"):
            return values.NOWHERE, None, 503
        return *_described(world, site.parent, site.port, {}), 0
    space = destination.get("namespace", hosts.key(rule)[0] if rule else "")
    if "service" in destination:
        return _of_service(world, site, destination, space)
    external = hosts.named(world, "ExternalService", space, destination["externalService"])
    if external is None:
        return values.NOWHERE, None, 500
    closed = any(
        each["spec"].get("throughEgressGateway") for each in (external, site.parent or external)
    )
    if site.parent is not None and closed:
        return values.NOWHERE, None, 503  # a sidecar has no way out but the egress gateway
    known = [each["number"] for each in external["spec"]["ports"]]
    wanted = destination.get("port", site.port)
    if wanted not in known and "port" not in destination and len(known) == 1:
        wanted = known[0]
    if wanted not in known:
        return values.NOWHERE, None, 500
    return *_described(world, external, wanted, {}), 0


def _of_service(
    world: hosts.World, site: hosts.Site, destination: values.Manifest, space: str
) -> tuple[str, tuple[str, ...] | None, int]:
    service = hosts.named(world, "Service", space, destination["service"])
    if service is None:
        return values.NOWHERE, None, 500
    if _is_alias(service):
        if destination.get("labels"):
            return values.NOWHERE, None, 500
        if site.parent is not None and site.parent["spec"].get("throughEgressGateway"):
            return values.NOWHERE, None, 503
    port = _service_port(service, destination, site.port)
    if port is None:
        return values.NOWHERE, None, 500
    return *_described(world, service, port, destination.get("labels", {})), 0


def _service_port(
    service: values.Manifest, destination: values.Manifest, requested: int
) -> int | None:
    """The port named; else the one requested, else the only HTTP port, else the only port."""
    known = [number for number, _ in hosts.ports(service)]
    if "port" in destination:
        return destination["port"] if destination["port"] in known else None
    if requested in known:
        return requested
    left = known if _is_alias(service) else hosts.http_ports(service) or known
    return left[0] if len(left) == 1 else None


def _is_alias(service: values.Manifest) -> bool:
    return bool(service["spec"].get("type") == "ExternalName")


def _described(
    world: hosts.World, target: values.Manifest, port: int, labels: Mapping[str, str]
) -> tuple[str, tuple[str, ...] | None]:
    """A target's name and its endpoints."""
    name = f"{'/'.join(hosts.key(target))}:{port}"
    if target["kind"] != "Service":
        spec = target["spec"]
        (there,) = [
            each.get("targetPort", port) for each in spec["ports"] if each["number"] == port
        ]
        return f"external {name}", tuple(
            sorted(f"{each['address']}:{there}" for each in spec["endpoints"])
        )
    parts = [name, *(f"{key}={value}" for key, value in sorted(labels.items()))]
    wanted = {*target["spec"].get("selector", {}).items(), *labels.items()}
    (numbered,) = [each for each in target["spec"]["ports"] if each["port"] == port]
    if _is_alias(target):  # of a host that nothing else speaks of, in all worlds
        return name, (f"{target['spec']['externalName']}:{numbered.get('targetPort', port)}",)
    return " ".join(parts), tuple(
        sorted(
            f"{pod['status']['podIP']}:{numbered.get('targetPort', port)}"
            for pod in hosts.of(world, "Pod")
            if hosts.key(pod)[0] == hosts.key(target)[0]
            and wanted <= set(pod["metadata"]["labels"].items())
        )
    )


def _mirrors(
    world: hosts.World, site: hosts.Site, rule: values.Manifest | None, route: values.Manifest
) -> dict[str, Fraction]:
    """One that cannot be resolved gets no copies."""
    found: dict[str, Fraction] = {}
    for mirror in route.get("mirrors", ()):
        target, _, status = _target(world, site, rule, mirror["destination"])
        if not status:
            found[target] = share(mirror)
    return found


def share(holder: values.Manifest) -> Fraction:
    """The share of requests that `percent` means."""
    return Fraction(str(holder.get("percent", 100))) / 100


def _fault(route: values.Manifest, arrived: conditions.Arrived) -> values.Fault:
    fault = route.get("fault", {})
    tests = {"headers": fault.get("headers", ())}
    if not fault or not conditions.http_takes(tests, arrived, cors=False):
        return values.Fault()
    delay, abort = fault.get("delay"), fault.get("abort")
    return values.Fault(
        delay_ms=milliseconds(delay["duration"]) if delay else 0,
        delayed=share(delay) if delay else Fraction(0),
        status=abort["httpStatus"] if abort else 0,
        aborted=share(abort) if abort else Fraction(0),
    )


def _retry(retry: values.Manifest) -> values.Retry | None:
    attempts = retry.get("attempts", 2)
    if not attempts:
        return None
    conditions_ = set(retry.get("retryOn") or _DEFAULT_RETRY)
    if retry.get("statusCodes"):
        conditions_.add("retriable-status-codes")
    return values.Retry(
        attempts=attempts,
        retry_on=frozenset(conditions_),
        status_codes=tuple(sorted(retry.get("statusCodes", ()))),
        per_try_timeout=milliseconds(retry.get("perTryTimeout", "0s")),
        per_try_idle_timeout=milliseconds(retry.get("perTryIdleTimeout", "0s")),
        previous_hosts=retry.get("previousHosts", False),
    )


def milliseconds(duration: str) -> int:
    """A duration such as `500ms` or `2s`."""
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h)", duration).groups()  # type: ignore[union-attr]
    return int(number) * {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}[unit]


def _rewritten(
    rewrite: values.Manifest, match: values.Manifest, arrived: conditions.Arrived
) -> tuple[str, str]:
    """The path and the host that the target sees."""
    path, mark, query = values.resolved_path(arrived.request.path).partition("?")
    match rewrite:
        case {"prefix": prefix}:
            path = _new_prefix(prefix, match.get("path", {}), path)
        case {"full": full}:
            path = full
        case {"regex": regex}:
            path = re.sub(regex["pattern"], regex["substitution"], path)
        case {"template": template}:
            path = _from_template(template, match["path"]["template"], path)
    return path + mark + query, rewrite.get("host", arrived.authority)


def _new_prefix(value: str, test: Any, path: str) -> str:
    """A value in the place of what a prefix matched; slashes between elements are kept right."""
    if "stringPrefix" in test and test["stringPrefix"] != "/":
        return value + path[len(test["stringPrefix"]) :]
    taken = test.get("prefix", "/").rstrip("/")
    rest = path[len(taken) :]
    return (value.rstrip("/") + rest) or "/"


def _from_template(value: str, template: str, path: str) -> str:
    named: dict[str, str] = {}
    given = path[1:].split("/")
    for number, element in enumerate(template[1:].split("/")):
        name = element.strip("{}").removesuffix("=**").removesuffix("=*")
        rest = element.endswith("=**}")
        named[name] = "/".join(given[number:]) if rest else given[number]
    return re.sub(r"\{(\w+)\}", lambda found: named[found.group(1)], value)


def _location(
    redirect: values.Manifest, match: values.Manifest, arrived: conditions.Arrived
) -> str:
    """The URL of a redirect."""
    request = arrived.request
    host, _, port = arrived.authority.partition(":")
    scheme = redirect.get("scheme", request.scheme)
    if "port" in redirect:
        port = str(redirect["port"])
    elif scheme != request.scheme or "host" in redirect:
        port = ""
    path, mark, query = values.resolved_path(request.path).partition("?")
    path = redirect.get("path", path)
    if "prefix" in redirect:
        path = _new_prefix(redirect["prefix"], match.get("path", {}), path)
    tail = "" if redirect.get("stripQuery") else mark + query
    place = redirect.get("host", host) + (f":{port}" if port else "")
    return values.canonical_location(f"{scheme}://{place}{path}{tail}")
