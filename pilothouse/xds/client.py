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

from google.protobuf import message as protobuf

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import subscription

_INVALID_ARGUMENT = 3
_NOTHING: frozenset[str] = frozenset()
_EVERYTHING = frozenset({subscription.WILDCARD})


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
    version: str = ""
    """`system_version_info` of the response: for people, and for whoever traces."""


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
            subscriptions: type URL to names, or to None for everything. A type without names is
                not asked for until it has some.
            accept: looks at each resource before a response is taken; None takes all.
        """
        self._node = node
        self._subscriptions = dict(subscriptions)
        self._accept = accept
        self._held: dict[str, dict[str, ReceivedResource]] = {url: {} for url in subscriptions}
        self._answered: set[str] = set()
        self._introduced = False

    @property
    def synced(self) -> bool:
        """True once every type that is asked for has been answered."""
        return all(
            url in self._answered for url, names in self._subscriptions.items() if names != _NOTHING
        )

    def resources(self, type_url: str) -> Mapping[str, ReceivedResource]:
        """The last good set of a type, in name order."""
        return dict(sorted(self._held[type_url].items()))

    def connect(self) -> tuple[bytes, ...]:
        """The first requests of a new stream: what is wanted, and what is held already."""
        self._introduced = False
        requests = []
        for url, names in sorted(self._subscriptions.items()):
            if names == _NOTHING:
                continue  # an empty list would ask for everything
            request = discovery_pb2.DeltaDiscoveryRequest(
                type_url=url,
                resource_names_subscribe=sorted(_listed(names)),
                initial_resource_versions={
                    name: held.version for name, held in self._held[url].items()
                },
            )
            requests.append(self._encode(request))
        return tuple(requests)

    def subscribe(self, type_url: str, names: frozenset[str] | None) -> tuple[bytes, ...]:
        """Ask for exactly these names of a type from now on, or for everything.

        Returns:
            The requests to write if a stream is open; the next `connect` says the same.
        """
        before = _listed(self._subscriptions[type_url])
        after = _listed(names)
        self._subscriptions[type_url] = names
        held = self._held[type_url]
        for gone in [name for name in held if not self._wants(type_url, name)]:
            del held[gone]
        if before == after:
            return ()
        request = discovery_pb2.DeltaDiscoveryRequest(
            type_url=type_url,
            resource_names_subscribe=sorted(after - before),
            resource_names_unsubscribe=sorted(before - after),
        )
        return (self._encode(request),)

    def receive(self, response: bytes) -> ClientUpdate:
        """Take an encoded DeltaDiscoveryResponse.

        Raises: ValueError: it is no such message, or of a type that was not asked for; the stream
        is of no use any more.
        """
        try:
            message = discovery_pb2.DeltaDiscoveryResponse.FromString(response)
        except protobuf.DecodeError as error:
            msg = f"not a DeltaDiscoveryResponse: {error}"
            raise ValueError(msg) from error
        url = message.type_url
        if url not in self._held:
            msg = f"resources of type {url!r} were not asked for"
            raise ValueError(msg)
        wanted = (one for one in message.resources if self._wants(url, one.name))
        changed = tuple(sorted((_received(one) for one in wanted), key=lambda one: one.name))
        reasons = {
            one.name: reason for one in changed if (reason := self._reason(url, one)) is not None
        }
        answer = discovery_pb2.DeltaDiscoveryRequest(type_url=url, response_nonce=message.nonce)
        refused = tuple(f"{name}: {reason}" for name, reason in reasons.items())
        if refused:
            answer.error_detail.code = _INVALID_ARGUMENT
            answer.error_detail.message = "; ".join(refused)
        good = tuple(one for one in changed if one.name not in reasons)
        held = self._held[url]
        news = tuple(one for one in good if not _same(held.get(one.name), one))
        held.update((one.name, one) for one in good)
        gone = tuple(
            (url, name)
            for name in sorted(message.removed_resources)
            if held.pop(name, None) is not None
        )
        self._answered.add(url)
        return ClientUpdate(
            requests=(self._encode(answer),),
            changed=news,
            removed=gone,
            refused=refused,
            version=message.system_version_info,
        )

    def _reason(self, type_url: str, resource: ReceivedResource) -> str | None:
        if resource.type_url != type_url:
            return f"is of type {resource.type_url!r}, not {type_url}"
        return None if self._accept is None else self._accept(resource)

    def _wants(self, type_url: str, name: str) -> bool:
        names = self._subscriptions[type_url]
        return names is None or name in names

    def _encode(self, request: discovery_pb2.DeltaDiscoveryRequest) -> bytes:
        if not self._introduced:
            request.node.CopyFrom(self._node)
            self._introduced = True
        return request.SerializeToString(deterministic=True)


def _same(held: ReceivedResource | None, one: ReceivedResource) -> bool:
    return held is not None and held.version == one.version and held.body == one.body


def _listed(names: frozenset[str] | None) -> frozenset[str]:
    return _EVERYTHING if names is None else names


def _received(resource: discovery_pb2.Resource) -> ReceivedResource:
    return ReceivedResource(
        type_url=resource.resource.type_url,
        name=resource.name,
        version=resource.version,
        body=resource.resource.value,
        metadata=resource.metadata.SerializeToString(deterministic=True)
        if resource.HasField("metadata")
        else b"",
    )
