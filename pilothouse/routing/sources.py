# SPDX-License-Identifier: Apache-2.0
"""Whose requests a match takes: decided where a proxy is planned, so that nothing is left to do.

A rule is narrowed to the matches that a place, or a client, may reach. One that loses none is the
same object afterwards, so proxies for which all tests come out alike share what is made of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

from pilothouse.model import keys
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


def asked(bounds: Iterable[rules.Bound]) -> Truths:
    """The tests of sources in some rules."""
    return frozenset(source for bound in bounds for source in bound.sources)


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
