# SPDX-License-Identifier: Apache-2.0
"""What objects document and what Envoy is sent say the same of every request.

Two readers that share no code meet here. One knows the comments of the protos, and reads manifests;
the other knows Envoy's documentation, and reads the bytes that Envoy is sent. Worlds are made so
that rules meet: few parents, hosts, paths and words. That they do is shown by mistakes on purpose,
each of which must make a difference.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import hypothesis
import pytest

from pilothouse.api.envoy.config.route.v3 import route_components_pb2, route_pb2
from tests.support import reference_planned as planned
from tests.support import reference_values as values
from tests.support import reference_worlds as worlds

_ANYHOW = tuple(hypothesis.HealthCheck)


@hypothesis.given(worlds.cases())
@hypothesis.settings(max_examples=120, suppress_health_check=_ANYHOW)
def test_what_is_documented_is_what_envoy_is_told(case: worlds.Case) -> None:
    """Route, shares, answer, path, host, headers, time and retries, at sidecars and gateways."""
    world, asked = case
    said = planned.documented(world, asked)
    made = planned.generated(planned.Planned(world), asked)
    assert planned.differences(asked, said, made) == []


def test_a_preflight_that_is_redirected() -> None:
    """It goes where the request would go that shall follow: without the port of another scheme."""
    rule = {
        "apiVersion": worlds.API,
        "kind": "RouteRule",
        "metadata": {"name": "moved"},
        "spec": {
            "parents": [{"service": "reviews"}],
            "http": [
                {
                    "matches": [{"method": "PUT"}],
                    "redirect": {"scheme": "http"},
                    "cors": {"allowOrigins": [{"exact": "https://b.com"}]},
                }
            ],
        },
    }
    request = values.Request(
        authority="reviews:9080",
        method="OPTIONS",
        scheme="https",
        headers=(("origin", "https://a.com"), ("access-control-request-method", "PUT")),
    )
    client = values.Client(namespace="default")
    told = planned.Planned([*worlds.ALWAYS, rule]).envoy(client).verdict(request)
    assert told.location == "http://reviews/"


@dataclasses.dataclass(frozen=True)
class Example:
    """A world with requests, and what its objects say of these."""

    world: worlds.World
    asked: worlds.Asked
    said: Sequence[values.Verdict]
    told: planned.Planned

    def tells(self, made: Sequence[values.Verdict]) -> bool:
        """Whether something else is found out."""
        return bool(planned.differences(self.asked, self.said, made))


@functools.cache
def examples() -> list[Example]:
    """Some worlds, the same each time."""
    found = []
    for seed in range(100):
        world, asked = worlds.case(seed)
        said = planned.documented(world, asked)
        found.append(Example(world, asked, said, planned.Planned(world)))
    return found


def test_examples_without_mistakes() -> None:
    """What is found out below is found out because of the mistakes."""
    assert not any(each.tells(planned.generated(each.told, each.asked)) for each in examples())


Told = Callable[[route_pb2.RouteConfiguration], object]


def _matches(spoil: Callable[[route_components_pb2.RouteMatch], object]) -> Told:
    """Spoils each match."""

    def spoil_all(routes: route_pb2.RouteConfiguration) -> None:
        for host in routes.virtual_hosts:
            for route in host.routes:
                spoil(route.match)

    return spoil_all


def _actions(spoil: Callable[[Any], object]) -> Told:
    """Spoils what sends requests on."""

    def spoil_all(routes: route_pb2.RouteConfiguration) -> None:
        for host in routes.virtual_hosts:
            for route in host.routes:
                if route.HasField("route"):
                    spoil(route.route)

    return spoil_all


def _order(key: Callable[[route_components_pb2.Route], Any]) -> Told:
    """Puts routes in another order; the default route stays the last."""

    def reorder(routes: route_pb2.RouteConfiguration) -> None:
        for host in routes.virtual_hosts:
            ordered = sorted(host.routes, key=lambda one: (one.name == "default", key(one)))
            del host.routes[:]
            host.routes.extend(ordered)

    return reorder


def _by_characters(match: route_components_pb2.RouteMatch) -> None:
    if match.path_separated_prefix:
        match.prefix = match.path_separated_prefix


def _with_absent_headers(match: route_components_pb2.RouteMatch) -> None:
    for header in match.headers:
        header.treat_missing_header_as_empty = False


def _as_written(match: route_components_pb2.RouteMatch) -> None:
    match.ClearField("case_sensitive")


def _evenly(action: route_components_pb2.RouteAction) -> None:
    for one in action.weighted_clusters.clusters:
        one.weight.value = 1


def _unchanged_shares(action: route_components_pb2.RouteAction) -> None:
    for one in action.weighted_clusters.clusters:
        one.ClearField("request_headers_to_add")


def _without_retries(routes: route_pb2.RouteConfiguration) -> None:
    for host in routes.virtual_hosts:
        host.ClearField("retry_policy")
    _actions(lambda action: action.ClearField("retry_policy"))(routes)


def _domains(keep: Callable[[str], bool]) -> Told:
    def drop(routes: route_pb2.RouteConfiguration) -> None:
        for host in routes.virtual_hosts:
            host.domains[:] = [one for one in host.domains if keep(one)]

    return drop


MISTAKES: dict[str, Told] = {
    "the order written": _order(lambda route: route.name),
    "by the length of paths": _order(lambda route: -len(str(route.match))),
    "prefixes by characters": _matches(_by_characters),
    "any case matters": _matches(_as_written),
    "no methods and headers": _matches(lambda match: match.ClearField("headers")),
    "no parameters": _matches(lambda match: match.ClearField("query_parameters")),
    "inverted tests need the header": _matches(_with_absent_headers),
    "weights": _actions(_evenly),
    "headers of shares": _actions(_unchanged_shares),
    "retries": _without_retries,
    "timeouts": _actions(lambda action: action.ClearField("timeout")),
    "mirrors": _actions(lambda action: action.ClearField("request_mirror_policies")),
    "prefixes stay": _actions(lambda action: action.ClearField("prefix_rewrite")),
    "hosts stay": _actions(lambda action: action.ClearField("host_rewrite_literal")),
    "no wildcards": _domains(lambda domain: not domain.startswith("*.")),
    "ports must be written": _domains(lambda domain: ":" in domain),
}


@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_a_mistake_in_what_envoy_is_told_makes_a_difference(mistake: str) -> None:
    """Of each of these, some request tells."""
    told = MISTAKES[mistake]
    assert any(each.tells(planned.generated(each.told, each.asked, told)) for each in examples())


def _specs(rule: Any) -> Iterator[Any]:
    yield rule["spec"]


def _parents(rule: Any) -> Iterator[Any]:
    yield from rule["spec"]["parents"]


def _routes(rule: Any) -> Iterator[Any]:
    yield from rule["spec"]["http"]


def _destinations(rule: Any) -> Iterator[Any]:
    for route in _routes(rule):
        yield from route.get("destinations", ())


def _every_match(rule: Any) -> Iterator[Any]:
    for route in _routes(rule):
        yield from route.get("matches", ())


def _at_gateways(rule: Any) -> bool:
    """Whether a rule is at gateways only, where no source is tested."""
    return all("gateway" in parent for parent in rule["spec"]["parents"])


OVERSEEN: dict[str, tuple[str, Callable[[Any], Iterator[Any]]]] = {
    "priority": ("priority", _specs),
    "hosts": ("hosts", _specs),
    "grpc": ("grpc", _specs),
    "ages": ("creationTimestamp", lambda rule: iter([rule["metadata"]])),
    "port of a parent": ("port", _parents),
    "listener": ("listener", _parents),
    "labels": ("labels", _destinations),
    "port of a destination": ("port", _destinations),
    "port of a match": ("port", _every_match),
    "scheme": ("scheme", _every_match),
    "authority": ("authority", _every_match),
    "cookies": ("cookies", _every_match),
    "source": ("source", _every_match),
    "gateways": ("gateways", lambda rule: _every_match(rule) if _at_gateways(rule) else iter(())),
    "faults": ("fault", _routes),
    "preflights": ("cors", _routes),
    "sizes": ("maxRequestBytes", _routes),
}


@pytest.mark.parametrize("field", sorted(OVERSEEN))
def test_a_field_that_is_overseen_makes_a_difference(field: str) -> None:
    """A planner that did not read it would plan what is planned without it."""
    name, holders = OVERSEEN[field]

    def without(world: worlds.World) -> worlds.World:
        copied = worlds.copied(world)
        for rule in copied:
            if rule["kind"] == "RouteRule":
                for holder in holders(rule):
                    holder.pop(name, None)
        return copied

    assert _overseen(without)


def _overseen(changed: Callable[[worlds.World], worlds.World]) -> bool:
    return any(
        each.tells(planned.generated(planned.Planned(changed(each.world)), each.asked))
        for each in examples()
    )


def test_a_rule_that_speaks_to_the_clients_of_others_makes_a_difference() -> None:
    """Rules speak to their own namespace's clients only, unless the service is there, too."""

    def hijacked(world: worlds.World) -> worlds.World:
        copied = worlds.copied(world)
        for rule in copied:
            if rule["kind"] == "RouteRule":
                own = rule["metadata"]["namespace"]
                rule["metadata"]["namespace"] = rule["spec"]["parents"][0].get("namespace", own)
        return copied

    assert _overseen(hijacked)
