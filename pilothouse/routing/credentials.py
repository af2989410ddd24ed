# SPDX-License-Identifier: Apache-2.0
"""Which secrets objects name, and whether they are there. What is in them is not known here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pilothouse.config import objects
from pilothouse.model import keys, secrets
from pilothouse.routing import parsed, parsing, plan, upstreams

RESOLVED = "ResolvedRefs"
Conditions = Mapping[keys.ObjectKey, tuple[objects.Condition, ...]]


class Wanted(NamedTuple):
    """A secret that an object names."""

    reason: str
    """What the condition is called while it is missing, in the words of Gateway API."""
    where: str
    use: secrets.SecretKey | secrets.AuthorityKey

    def problem(self) -> str:
        """That it is missing, for people."""
        match self.use:
            case secrets.AuthorityKey(secret=secrets.SYSTEM):
                return f"{self.where}: discovery's system has no authorities that it trusts"
            case secrets.AuthorityKey(secret=key):
                return (
                    f"{self.where}: secret {key} does not exist or has no ca.crt that can be used"
                )
            case key:
                return (
                    f"{self.where}: secret {key} does not exist or has no certificate and key that"
                    " can be used"
                )


def told(conditions: Conditions, found: parsing.Objects, held: secrets.Uses | None) -> Conditions:
    """Conditions of objects, in which missing secrets are told too.

    Args:
        conditions: What else was found out, of every object.
        found: The objects.
        held: What the secrets may be used for that there are; None when nobody knows.
    """
    if held is None:
        return conditions
    changed = dict(conditions)
    named = [(policy.key, of_policy(policy)) for policy in found.policies]
    named += [(gateway.key, of_gateway(gateway)) for gateway in found.gateways]
    for key, wanted in named:
        absent = tuple(dict.fromkeys(one for one in wanted if one.use not in held))
        if absent:
            changed[key] = tuple(_with(one, absent) for one in conditions[key])
    return changed


def _with(condition: objects.Condition, absent: tuple[Wanted, ...]) -> objects.Condition:
    if condition.type != RESOLVED:
        return condition
    messages = [one.problem() for one in absent]
    if condition.status:
        condition = dataclasses.replace(condition, status=False, reason=absent[0].reason)
    else:
        messages.insert(0, condition.message)
    return dataclasses.replace(condition, message="; ".join(messages))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """The secrets that clusters need."""

    uses: secrets.Uses = frozenset()

    def served(self, namespace: str) -> tuple[secrets.SecretKey, ...]:
        """The certificates that the proxies of a namespace may be served: its own; sorted."""
        pairs = {key for key in self.uses if isinstance(key, secrets.SecretKey)}
        return tuple(sorted(key for key in pairs if key.namespace == namespace))

    @property
    def authorities(self) -> tuple[secrets.SecretKey, ...]:
        """Who signs certificates of endpoints, which is no secret; sorted."""
        return tuple(
            sorted(key.secret for key in self.uses if isinstance(key, secrets.AuthorityKey))
        )


NOTHING = Needed()


def needed(clusters: Iterable[plan.Cluster], *, certified: bool) -> Needed:
    """What clusters need; nothing, without a look at them, unless some policy names a secret."""
    if not certified:
        return NOTHING
    return Needed(uses=frozenset(use for one in clusters for use in of_cluster(one)))


def of_cluster(cluster: plan.Cluster) -> secrets.Uses:
    """What a cluster needs to talk to its endpoints."""
    tls = cluster.settings.tls
    return frozenset() if tls is None else frozenset(one.use for one in _of_tls("", tls))


def of_policy(policy: parsed.Policy) -> Iterator[Wanted]:
    """What a DestinationPolicy names."""
    yield from _of_sections("spec.tls", policy.sections)
    for port, sections in policy.ports.items():
        yield from _of_sections(f"spec.ports: port {port}: tls", sections)


def _of_sections(where: str, sections: upstreams.Sections) -> Iterator[Wanted]:
    tls = sections.get("tls")
    if tls is not None:
        yield from _of_tls(where, tls)


def _of_tls(where: str, tls: upstreams.Tls) -> Iterator[Wanted]:
    if tls.authority is not None:
        authority = secrets.AuthorityKey(tls.authority)
        field = "systemAuthorities" if tls.authority == secrets.SYSTEM else "caSecret"
        yield Wanted("InvalidCACertificateRef", f"{where}.{field}", authority)
    if tls.certificate is not None:
        at = f"{where}.clientCertificate"
        yield Wanted("InvalidClientCertificateRef", at, tls.certificate)


def of_gateway(gateway: parsed.Gateway) -> Iterator[Wanted]:
    """What a MeshGateway names."""
    for listener in gateway.listeners:
        if listener.tls is not None:
            where = f"listener {listener.name}: tls"
            for key in listener.tls.certificates:
                yield Wanted("InvalidCertificateRef", f"{where}.certificates", key)
            if listener.tls.clients is not None:
                authority = secrets.AuthorityKey(listener.tls.clients.authority)
                at = f"{where}.clientValidation.caCertificates"
                yield Wanted("InvalidCACertificateRef", at, authority)
