# SPDX-License-Identifier: Apache-2.0
"""Which objects stand in each other's way, and who gives way: the younger.

Age is creationTimestamp, then namespace and name; an absent time is older than any. Objects are
looked at from the oldest on, and only one that won takes anything away from those after it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from pilothouse.config import gateway_conflicts, objects, status
from pilothouse.model import keys

CONFLICTED = "Conflicted"
NOT_USED = "NotUsed"
MESH_CONFIG = keys.ObjectKey(kind="MeshConfig", namespace=objects.ROOT_NAMESPACE, name="default")
"""The only MeshConfig that is used."""
CLAIMING: Final = frozenset({"DestinationPolicy", "ExternalService", "MeshGateway", "MeshConfig"})
"""The kinds of objects that may stand in each other's way."""


class Claim(NamedTuple):
    """Something that only one object may have."""

    token: Hashable
    what: str
    """For people, what is claimed."""


class Claims:
    """What the objects looked at so far have taken."""

    def __init__(self) -> None:
        self._taken: dict[Hashable, keys.ObjectKey] = {}
        self._ports = gateway_conflicts.Ports()

    def objections(self, config: objects.Config) -> tuple[objects.Condition, ...]:
        """Why an object cannot be in force beside those that have been taken; nothing if it can."""
        if config.key.kind == MESH_CONFIG.kind and config.key != MESH_CONFIG:
            used = f"only the MeshConfig {MESH_CONFIG.name} in {MESH_CONFIG.namespace} is used"
            return (_refused(NOT_USED, used),)
        reasons = [
            f"{claim.what} is taken by {self._taken[claim.token]}"
            for claim in _claims(config)
            if claim.token in self._taken
        ]
        reasons += self._ports.objections(config)
        if not reasons:
            return ()
        return (_refused(CONFLICTED, "; ".join(dict.fromkeys(reasons))),)

    def take(self, config: objects.Config) -> None:
        """Give an object all that it claims."""
        for claim in _claims(config):
            self._taken[claim.token] = config.key
        self._ports.take(config)


def by_age(configs: Iterable[objects.Config]) -> list[objects.Config]:
    """Objects from the oldest to the youngest."""
    return sorted(configs, key=age)


def age(config: objects.Config) -> tuple[int, str, str, str]:
    """What the order of age goes by."""
    key = config.key
    return (config.meta.created, key.namespace, key.name, key.kind)


def cross_check(
    configs: Mapping[keys.ObjectKey, objects.Config],
) -> Mapping[keys.ObjectKey, tuple[objects.Condition, ...]]:
    """The objects that give way to an older one, or that nobody asks.

    Args:
        configs: All objects, each valid by itself, in any order.

    Returns:
        ``Accepted`` False, reason ``Conflicted`` (naming the winner) or ``NotUsed``, for each of
        them, in key order.
    """
    claims = Claims()
    found = {}
    for config in by_age(configs.values()):
        if refused := claims.objections(config):
            found[config.key] = refused
        else:
            claims.take(config)
    return dict(sorted(found.items()))


def _refused(reason: str, message: str) -> objects.Condition:
    return objects.Condition(type=status.ACCEPTED, status=False, reason=reason, message=message)


def _claims(config: objects.Config) -> Iterator[Claim]:
    spec: Any = config.spec
    match config.key.kind:
        case "DestinationPolicy":
            namespace = spec.namespace or config.key.namespace
            labels = keys.labels(dict(spec.labels))
            # A policy in another namespace speaks to other clients, so the two get along.
            external = spec.WhichOneof("target") == "external_service"
            kind = "external service" if external else "service"
            name = spec.external_service if external else spec.service
            token = (config.key.kind, config.key.namespace, kind, namespace, name, labels)
            shown = ",".join(f"{key}={value}" for key, value in labels)
            of_labels = f" with labels {shown}" if labels else ""
            yield Claim(token=token, what=f"{kind} {namespace}/{name}{of_labels}")
        case "ExternalService":
            for host in spec.hosts:
                yield Claim(token=(config.key.kind, host.lower()), what=f"host {host}")
