# SPDX-License-Identifier: Apache-2.0
"""The client's side of a delta stream, sans-I/O: how our services read from each other.

The client outlives its streams: what it accepted last stays when a stream ends, and on the next one
it says what it holds, so that only the difference travels. A bad resource is refused by name and
its last good version kept; the good ones of the same response are taken, as gRPC's own clients do
(gRFC A46).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import subscription

_INVALID_ARGUMENT = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedResource:
    """A resource as it came."""

    type_url: str
    name: str
    version: str
    body: bytes
    metadata: bytes = b""
    """The encoded ``envoy.config.core.v3.Metadata`` that travelled beside the body."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientUpdate:
    """What a response leads to."""

    requests: tuple[bytes, ...] = ()
    """To be written, in order."""
    changed: tuple[ReceivedResource, ...] = ()
    """New or different, by type and name."""
    removed: tuple[tuple[str, str], ...] = ()
    """Type URL and name of what is gone."""
    refused: tuple[str, ...] = ()
    """Why the response was refused, a line for each bad resource."""


Accept = Callable[[ReceivedResource], str | None]
"""Gives the reason to refuse a resource, or None."""


class DeltaClient:
    """Holds what a server told, over any number of streams."""

    def __init__(
        self,
        *,
        node: base_pb2.Node,
        subscriptions: Mapping[str, frozenset[str] | None],
        accept: Accept | None = None,
    ) -> None:
        """Begin with nothing.

        Args:
            node: who asks.
            subscriptions: type URL to names, or to None for everything.
            accept: looks at each resource before a response is taken; None takes all.
        """
        self._node = node
        self._subscriptions = dict(subscriptions)
        self._accept = accept
        self._held: dict[str, dict[str, ReceivedResource]] = {url: {} for url in subscriptions}
        self._answered: set[str] = set()

    @property
    def synced(self) -> bool:
        """True once every type has been answered; then for ever."""
        return self._answered >= set(self._subscriptions)

    def resources(self, type_url: str) -> Mapping[str, ReceivedResource]:
        """The last good set of a type, in name order."""
        return dict(sorted(self._held[type_url].items()))

    def connect(self) -> tuple[bytes, ...]:
        """The first requests of a new stream: what is wanted, and what is held already."""
        requests = []
        for number, (url, names) in enumerate(sorted(self._subscriptions.items())):
            request = discovery_pb2.DeltaDiscoveryRequest(
                type_url=url,
                resource_names_subscribe=[subscription.WILDCARD]
                if names is None
                else sorted(names),
                initial_resource_versions={
                    name: held.version for name, held in self._held[url].items()
                },
            )
            if number == 0:
                request.node.CopyFrom(self._node)
            requests.append(request.SerializeToString(deterministic=True))
        return tuple(requests)

    def subscribe(self, type_url: str, names: frozenset[str]) -> tuple[bytes, ...]:
        """Ask for exactly these names of a type from now on; the requests to write, if any."""
        before = self._subscriptions[type_url] or frozenset()
        self._subscriptions[type_url] = names
        for gone in before - names:
            self._held[type_url].pop(gone, None)
        if before == names:
            return ()
        request = discovery_pb2.DeltaDiscoveryRequest(
            type_url=type_url,
            resource_names_subscribe=sorted(names - before),
            resource_names_unsubscribe=sorted(before - names),
        )
        return (request.SerializeToString(deterministic=True),)

    def receive(self, response: bytes) -> ClientUpdate:
        """Take an encoded DeltaDiscoveryResponse.

        Raises: ValueError: it is no such message, or of a type that was not asked for; the stream
        is of no use any more.
        """
        try:
            message = discovery_pb2.DeltaDiscoveryResponse.FromString(response)
        except Exception as error:
            msg = f"not a DeltaDiscoveryResponse: {error}"
            raise ValueError(msg) from error
        url = message.type_url
        if url not in self._held:
            msg = f"resources of type {url!r} were not asked for"
            raise ValueError(msg)
        changed = tuple(
            sorted((_received(url, one) for one in message.resources), key=lambda one: one.name)
        )
        reasons = {one.name: reason for one in changed if (reason := self._reason(one)) is not None}
        answer = discovery_pb2.DeltaDiscoveryRequest(type_url=url, response_nonce=message.nonce)
        refused = tuple(f"{name}: {reason}" for name, reason in reasons.items())
        if refused:
            answer.error_detail.code = _INVALID_ARGUMENT
            answer.error_detail.message = "; ".join(refused)
        good = tuple(one for one in changed if one.name not in reasons)
        held = self._held[url]
        held.update((one.name, one) for one in good)
        gone = tuple(
            (url, name)
            for name in sorted(message.removed_resources)
            if held.pop(name, None) is not None
        )
        self._answered.add(url)
        return ClientUpdate(
            requests=(answer.SerializeToString(deterministic=True),),
            changed=good,
            removed=gone,
            refused=refused,
        )

    def _reason(self, resource: ReceivedResource) -> str | None:
        return None if self._accept is None else self._accept(resource)


def _received(type_url: str, resource: discovery_pb2.Resource) -> ReceivedResource:
    return ReceivedResource(
        type_url=type_url,
        name=resource.name,
        version=resource.version,
        body=resource.resource.value,
        metadata=resource.metadata.SerializeToString(deterministic=True)
        if resource.HasField("metadata")
        else b"",
    )
