# SPDX-License-Identifier: Apache-2.0
"""The server's side of one xDS stream, sans-I/O: what state of the world and delta have in common.

Bytes of requests go in through `receive`, new targets through `update`, and `poll` gives the next
response to write, built from the newest state; None means that there is nothing to write now. There
is no queue: what was not polled yet is simply newer when it is. This module knows no socket, no
clock and no Envoy message.

Rules kept here (https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol):
- the node comes with the first request and must not change; the type may be left out on a stream of
  one type only;
- each type has its own nonce, subscription and acknowledgement; at most one response of a type is
  unacknowledged;
- a refused response is not sent again until the content changes, and what is sent then starts from
  what was acknowledged;
- types are independent, so that endpoints are answered while the acknowledgement of clusters is
  withheld for them;
- clusters, listeners and routes move by the steps of `transition`, for clients that take all
  clusters by wildcard; a client that names its clusters learns those names from routes and would
  wait for ever.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Mapping
from typing import TypeVar

from google.protobuf import message

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.xds import resources, subscription, transition, types

_T = TypeVar("_T", bound=message.Message)


class ProtocolError(Exception):
    """The client broke the protocol; the stream must end with this gRPC status."""

    def __init__(self, code: str, text: str) -> None:
        """``code`` is the name of a gRPC status code."""
        super().__init__(text)
        self.code = code


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subscribed:
    """The client asked for something new, or for something again."""

    type_url: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Acked:
    """The client accepted the newest response of a type."""

    type_url: str
    nonce: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Nacked:
    """The client refused the newest response of a type."""

    type_url: str
    nonce: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """The client answered a response that is not the newest of its type."""

    type_url: str
    nonce: str


Event = Subscribed | Acked | Nacked | Stale


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A response to write."""

    type_url: str
    nonce: str
    version: str
    body: bytes
    """The encoded DiscoveryResponse or DeltaDiscoveryResponse."""
    resources: int
    removed: int = 0


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


class TypeState:
    """One type on one stream."""

    __slots__ = (
        "acked",
        "acked_version",
        "answered",
        "claimed",
        "crossed",
        "error",
        "forced",
        "held",
        "nonce",
        "number",
        "outstanding",
        "refused",
        "sent_version",
        "subscription",
        "type",
    )

    def __init__(self, kind: types.ResourceType) -> None:
        """Begin with nothing asked and nothing sent."""
        self.type = kind
        self.subscription = subscription.Subscription(wildcard_type=kind.wildcard)
        self.held = resources.Snapshot.EMPTY
        """The snapshot whose content of this type was written last."""
        self.acked = resources.Snapshot.EMPTY
        """The snapshot whose content of this type was acknowledged last."""
        self.refused: resources.Snapshot | None = None
        """The snapshot whose content was refused, until one with other content is written."""
        self.answered = False
        """False until something was written, or known to be held already."""
        self.claimed: dict[str, str] = {}
        """Name to version that the client said it holds, until the first response."""
        self.forced: set[str] = set()
        """Names to be answered whatever was sent before."""
        self.crossed = False
        """True when a request for this type crossed the newest response on the way."""
        self.nonce = ""
        self.number = 0
        self.outstanding = False
        self.sent_version = ""
        self.acked_version = ""
        self.error = ""

    def covered(self, difference: resources.Difference) -> resources.Difference:
        """The part of a difference that the client wants."""
        wanted = self.subscription
        if wanted.wildcard or not difference:
            return difference
        return resources.Difference(
            changed=tuple(one for one in difference.changed if one.name in wanted.names),
            removed=tuple(name for name in difference.removed if name in wanted.names),
        )

    def wanted(self, view: resources.Snapshot) -> Iterable[resources.Resource]:
        """All resources of a view that the client wants, in name order."""
        everything = view.resources(self.type.type_url)
        if self.subscription.wildcard:
            return everything.values()
        return (everything[name] for name in sorted(self.subscription.names) if name in everything)

    def difference(self, view: resources.Snapshot) -> resources.Difference:
        """What would have to be written for the client to hold this view."""
        url = self.type.type_url
        if self.refused is not None and not self.covered(resources.diff(self.refused, view, url)):
            return resources.Difference()
        return self.covered(resources.diff(self.held, view, url))

    def settle(self, view: resources.Snapshot) -> None:
        """Note that the client holds this view's content without being sent anything."""
        self.held = self.acked = view
        self.answered = True


class Stream(abc.ABC):
    """What both variants share. Use `sotw.SotwStream` or `delta.DeltaStream`."""

    def __init__(
        self,
        *,
        table: Mapping[str, types.ResourceType] = types.BY_URL,
        default_type: str | None = None,
    ) -> None:
        """Begin a stream.

        Args:
            table: the types that are served; others are held and stay silent.
            default_type: the type of a stream of one type; None on an aggregated stream.
        """
        self._table = table
        self._default_type = default_type
        self._states: dict[str, TypeState] = {}
        self._dirty: set[str] = set()
        self._settled = resources.Snapshot.EMPTY
        self.node: base_pb2.Node | None = None
        """From the first request."""
        self.target: resources.Snapshot | None = None
        """What the client shall hold in the end; None before the first `update`."""
        self.current = resources.Snapshot.EMPTY
        """The step that is being delivered."""

    @abc.abstractmethod
    def receive(self, request: bytes) -> tuple[Event, ...]:
        """Take an encoded request.

        Raises:
            ProtocolError: the client broke the protocol.
        """

    def update(self, snapshot: resources.Snapshot) -> None:
        """Take a new target; `poll` for what is to be written."""
        if snapshot is self.target:
            return
        first = self.target is None
        self.target = snapshot
        # What was refused is no step that was reached.
        base = (
            self._settled if any(state.refused for state in self._states.values()) else self.current
        )
        if first or not self._gated():
            self._enter(snapshot)
        else:
            self._enter(transition.next_step(base, snapshot))
        self._advance()

    def poll(self) -> Response | None:
        """The next response to write, or None."""
        if self.target is None:
            return None
        while self._dirty:
            url = min(self._dirty, key=self._order)
            state = self._states[url]
            self._dirty.discard(url)
            if state.outstanding:
                continue
            response = self._respond(state, self.current)
            if response is not None:
                return response
        return None

    @property
    def in_sync(self) -> bool:
        """True when the client has acknowledged the whole target."""
        if self.target is None or self.current is not self.target or self._dirty:
            return False
        return all(
            not state.outstanding and state.refused is None for state in self._states.values()
        )

    def acked(self, type_url: str) -> resources.Snapshot:
        """The snapshot whose content of a type was acknowledged last."""
        state = self._states.get(type_url)
        return state.acked if state is not None else resources.Snapshot.EMPTY

    def types(self) -> tuple[TypeStatus, ...]:
        """How each subscribed type stands, sorted by type URL."""
        return tuple(
            TypeStatus(
                type_url=url,
                resources=sum(1 for _ in state.wanted(state.held)),
                sent_version=state.sent_version,
                acked_version=state.acked_version,
                error=state.error,
            )
            for url, state in sorted(self._states.items())
        )

    @abc.abstractmethod
    def _respond(self, state: TypeState, view: resources.Snapshot) -> Response | None:
        """Write what the client lacks of a view, if anything."""

    def _order(self, url: str) -> tuple[int, str]:
        return self._states[url].type.order, url

    def _gated(self) -> bool:
        """True for a client that takes all clusters; only for it can the order be kept."""
        clusters = self._states.get(types.CLUSTER.type_url)
        return clusters is not None and clusters.subscription.wildcard and clusters.answered

    def _enter(self, step: resources.Snapshot) -> None:
        """Deliver a step; types that it does not change for this client are settled."""
        self.current = step
        for url, state in self._states.items():
            self._look(url, state)

    def _look(self, url: str, state: TypeState) -> None:
        """Mark a type dirty if the client lacks something of the current step."""
        if self.target is None:
            return
        if (
            not state.answered
            or state.forced
            or state.outstanding
            or state.difference(self.current)
        ):
            self._dirty.add(url)
        elif state.refused is None:
            state.settle(self.current)

    def _advance(self) -> None:
        """Go on to the next step when the present one is acknowledged."""
        while self.target is not None and self._reached():
            self._settled = self.current
            if self.current is self.target:
                return
            self._enter(transition.next_step(self.current, self.target))

    def _reached(self) -> bool:
        """True when every gated type of the present step is acknowledged."""
        return all(
            not state.outstanding and state.refused is None and url not in self._dirty
            for url, state in self._states.items()
            if state.type.gated
        )

    def _state(self, type_url: str) -> tuple[TypeState, bool]:
        """The state of a type, and whether it is new."""
        state = self._states.get(type_url)
        if state is not None:
            return state, False
        state = self._states[type_url] = TypeState(types.of(type_url, self._table))
        return state, True

    def _type_of(self, type_url: str) -> str:
        if self._default_type is None:
            if not type_url:
                raise ProtocolError(
                    "INVALID_ARGUMENT", "type_url is required on an aggregated stream"
                )
            return type_url
        if type_url not in ("", self._default_type):
            text = f"type_url is {type_url}, but this stream serves {self._default_type}"
            raise ProtocolError("INVALID_ARGUMENT", text)
        return self._default_type

    def _identify(self, node: base_pb2.Node, *, given: bool) -> None:
        if self.node is None:
            if not node.id:
                raise ProtocolError(
                    "INVALID_ARGUMENT", "the first request must carry a node with an id"
                )
            self.node = base_pb2.Node()
            self.node.CopyFrom(node)
        elif given and node.id != self.node.id:
            text = f"the node changed from {self.node.id} to {node.id}"
            raise ProtocolError("INVALID_ARGUMENT", text)

    def _written(self, state: TypeState, view: resources.Snapshot, version: str) -> str:
        """Note that a response is being written; return its nonce."""
        state.number += 1
        state.nonce = f"{state.type.short}-{state.number}"
        state.outstanding = True
        state.answered = True
        state.held = view
        state.refused = None
        state.error = ""
        state.forced.clear()
        state.claimed.clear()
        state.sent_version = version
        return state.nonce

    def _acknowledge(self, state: TypeState) -> Acked:
        state.outstanding = False
        state.acked = state.held
        state.acked_version = state.sent_version
        self._look(state.type.type_url, state)
        self._advance()
        return Acked(type_url=state.type.type_url, nonce=state.nonce)

    def _refuse(self, state: TypeState, text: str) -> Nacked:
        state.outstanding = False
        state.refused = state.held
        state.held = state.acked
        state.error = text or "refused without a reason"
        self._look(state.type.type_url, state)
        return Nacked(type_url=state.type.type_url, nonce=state.nonce, message=state.error)


def parse(kind: type[_T], request: bytes) -> _T:
    """Decode a request.

    Raises:
        ProtocolError: it is no such message.
    """
    try:
        return kind.FromString(request)
    except message.DecodeError as error:
        raise ProtocolError(
            "INVALID_ARGUMENT", f"not a {kind.DESCRIPTOR.full_name}: {error}"
        ) from error
