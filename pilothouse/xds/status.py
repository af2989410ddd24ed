# SPDX-License-Identifier: Apache-2.0
"""How far a client of a stream is, by type and by resource: for people, and for those who watch."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Iterator

from pilothouse.xds import resources, type_state


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TypeStatus:
    """How one type stands on a stream."""

    type_url: str
    resources: int
    """Resources of the newest response's view that the client wants."""
    sent_version: str
    """Empty before the first response."""
    acked_version: str
    error: str
    """The client's words if it refused the newest response."""
    wildcard: bool = False
    """True when the client asked for everything."""
    names: int = 0
    """How many it asked for by name."""
    awaited: bool = False
    """True while a response is not answered."""


class Sync(enum.Enum):
    """How one resource stands; the words are those of Envoy's client status service."""

    SYNCED = enum.auto()
    """The client has accepted it as it is to be."""
    NOT_SENT = enum.auto()
    STALE = enum.auto()
    """It is sent, and not answered."""
    ERROR = enum.auto()
    """The client has refused it, or a response that it was in."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResourceStatus:
    """How one resource that a client asked for stands on a stream."""

    type_url: str
    name: str
    sync: Sync
    resource: resources.Resource | None
    """As it is to be; None for a name that nobody has."""
    error: str = ""
    """Why it is not there, or the client's words."""

    @property
    def version(self) -> str:
        """Of the resource as it is to be; empty if there is none."""
        return "" if self.resource is None else self.resource.version


def of_types(states: Iterable[type_state.TypeState]) -> tuple[TypeStatus, ...]:
    """How each type stands, sorted by type URL."""
    found = (
        TypeStatus(
            type_url=state.type.type_url,
            resources=state.count(state.held),
            sent_version=state.sent_version,
            acked_version=state.acked_version,
            error=state.error,
            wildcard=state.subscription.wildcard,
            names=len(state.subscription.names),
            awaited=bool(state.outstanding),
        )
        for state in states
    )
    return tuple(sorted(found, key=lambda one: one.type_url))


def of_resources(
    states: Iterable[type_state.TypeState], target: resources.Snapshot
) -> Iterator[ResourceStatus]:
    """How each resource stands that a client asked for, sorted by type URL and name."""
    for state in sorted(states, key=lambda one: one.type.type_url):
        url = state.type.type_url
        found = {
            one.name: ResourceStatus(
                type_url=url,
                name=one.name,
                sync=(sync := _sync(state, one)),
                resource=one,
                error=state.error if sync is Sync.ERROR else "",
            )
            for one in state.wanted(target)
        }
        for name in state.subscription.names - found.keys():
            # The client has been told, if it is one that can be.
            sync = Sync.SYNCED if name in state.told else Sync.NOT_SENT
            found[name] = ResourceStatus(
                type_url=url, name=name, sync=sync, resource=None, error="does not exist"
            )
        for name in sorted(found):
            yield found[name]


def _sync(state: type_state.TypeState, resource: resources.Resource) -> Sync:
    name = resource.name
    if not state.answered or name in state.forced:
        return Sync.NOT_SENT
    if state.outstanding and name in state.sent:
        return Sync.STALE if _holds(state, state.held, resource) else Sync.NOT_SENT
    if name in state.doubt:
        refused = state.refused is not None and _holds(state, state.refused, resource)
        return Sync.ERROR if refused else Sync.NOT_SENT
    return Sync.SYNCED if _holds(state, state.acked, resource) else Sync.NOT_SENT


def _holds(
    state: type_state.TypeState, view: resources.Snapshot, resource: resources.Resource
) -> bool:
    held = view.get(state.type.type_url, resource.name)
    return held is not None and held.version == resource.version
