# SPDX-License-Identifier: Apache-2.0
"""Whose requests a match takes: decided where a proxy is planned, so that nothing is left to do.

A rule is narrowed to the matches that a place, or a client, may reach. One that loses none is the
same object afterwards, so proxies for which all tests come out alike share what is made of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from pilothouse.model import keys
from pilothouse.model import services as registry
from pilothouse.routing import parsed, rules

Truths = frozenset[parsed.Source]
"""The tests that hold of a client, among those that somebody asks for."""
NOTHING: Truths = frozenset()


class Client(NamedTuple):
    """What tests of sources look at."""

    namespace: str
    labels: keys.Labels
    services: frozenset[keys.ServiceKey]
    """Those of which it is an endpoint."""


def holds(source: parsed.Source, client: Client) -> bool:
    """Tell whether all of a test holds of a client."""
    return (
        source.namespace in ("", client.namespace)
        and keys.selects(source.labels, client.labels)
        and (source.service is None or source.service in client.services)
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The tests in rules that speak to clients in the mesh."""

    by_all: Truths
    """Those in rules that speak to all."""
    by_namespace: Mapping[str, Truths]
    """Those in rules that speak to the clients of one namespace."""
    services: tuple[keys.ServiceKey, ...]
    """Whose endpoints are asked for, sorted."""


def asked(attached: rules.Attachments) -> Asked:
    """The tests that somebody asks for."""
    producers = frozenset(
        source for by_ref in attached.producers.values() for source in _sources(by_ref)
    )
    consumers = {
        namespace: found
        for namespace, by_ref in attached.consumers.items()
        if (found := _sources(by_ref))
    }
    every = producers.union(*consumers.values())
    services = {source.service for source in every if source.service is not None}
    return Asked(by_all=producers, by_namespace=consumers, services=tuple(sorted(services)))


def _sources(by_ref: rules.ByRef) -> Truths:
    return frozenset(
        source for attached in by_ref.values() for one in attached for source in one.bound.sources
    )


Members = Mapping[str, frozenset[keys.ServiceKey]]
"""Services that are asked for, by the addresses of their endpoints, ready or not."""


def members(
    services: tuple[keys.ServiceKey, ...], endpoints: tuple[tuple[registry.Endpoint, ...], ...]
) -> Members:
    """Who is an endpoint of services that are asked for."""
    found: dict[str, set[keys.ServiceKey]] = {}
    for service, candidates in zip(services, endpoints, strict=True):
        for one in candidates:
            found.setdefault(one.address, set()).add(service)
    return {address: frozenset(some) for address, some in found.items()}


def truths(asked: Asked, client: Client) -> Truths:
    """The tests that hold of a client, among those in rules that speak to it."""
    relevant = asked.by_all | asked.by_namespace.get(client.namespace, NOTHING)
    return frozenset(source for source in relevant if holds(source, client))


def narrow(bounds: tuple[rules.Bound, ...], truths: Truths) -> tuple[rules.Bound, ...]:
    """The rules with those matches only whose tests of sources hold."""
    if not any(bound.sources for bound in bounds):
        return bounds
    return tuple(_narrow(bound, truths) for bound in bounds)


def _narrow(bound: rules.Bound, truths: Truths) -> rules.Bound:
    if not bound.sources:
        return bound

    def taken(clients: parsed.Clients) -> bool:
        return clients.source is None or clients.source in truths

    return dataclasses.replace(bound, rule=rules.restricted(bound.rule, taken), sources=())
