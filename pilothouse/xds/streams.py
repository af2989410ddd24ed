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

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.xds import content as contents
from pilothouse.xds import requests, resources, status, transition, type_state, types


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
    missing: int = 0
    """Names that are told to be missing."""


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
        self._states: dict[str, type_state.TypeState] = {}
        self._dirty: dict[str, contents.Content] = {}
        """What the next response of a type must hold, for types that have something to say."""
        self._settled = resources.Snapshot.EMPTY
        self._waiting: set[str] = set()
        """Types to be answered once the clusters of an earlier stream are up to date."""
        self.limit: int | None = None
        """Bytes of resources that a response may hold, if it can be split; None for any number."""
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
            requests.ProtocolError: the client broke the protocol.
        """

    def update(self, snapshot: resources.Snapshot) -> None:
        """Take a new target; `poll` for what is to be written."""
        if snapshot is not self.target:
            self.target = snapshot
            self._route()

    def poll(self) -> Response | None:
        """The next response to write, or None."""
        if not self._dirty:
            return None
        url = min(self._dirty, key=self._order)
        return self._write(self._states[url], self._dirty.pop(url))

    @property
    def ready(self) -> bool:
        """True when `poll` has something."""
        return bool(self._dirty)

    @property
    def in_sync(self) -> bool:
        """True when the client has acknowledged the whole target."""
        if self.target is None or self.current is not self.target or self._dirty:
            return False
        return all(
            not state.outstanding and state.refused is None for state in self._states.values()
        )

    @property
    def idle(self) -> bool:
        """True when nothing is to be written and no answer is awaited."""
        return not self._dirty and not any(state.outstanding for state in self._states.values())

    @property
    def refusals(self) -> Mapping[str, str]:
        """Type to the client's words, where what it refused is still what it shall hold."""
        return {
            url: state.error for url, state in self._states.items() if state.refused is not None
        }

    def claimed(self, type_url: str) -> bool:
        """True when the client held something of a type before this stream, by its own words."""
        state = self._states.get(type_url)
        return state is not None and state.returned

    def acked(self, type_url: str) -> resources.Snapshot:
        """The snapshot whose content of a type was acknowledged last."""
        state = self._states.get(type_url)
        return state.acked if state is not None else resources.Snapshot.EMPTY

    @property
    def subscribed(self) -> tuple[str, ...]:
        """The types that the client has asked for, in the order it did."""
        return tuple(self._states)

    def types(self) -> tuple[status.TypeStatus, ...]:
        """How each subscribed type stands, sorted by type URL."""
        return status.of_types(self._states.values())

    def statuses(self) -> tuple[status.ResourceStatus, ...]:
        """How each resource that the client asked for stands, sorted by type URL and name."""
        target = resources.Snapshot.EMPTY if self.target is None else self.target
        return tuple(status.of_resources(self._states.values(), target))

    @abc.abstractmethod
    def _content(
        self, state: type_state.TypeState, view: resources.Snapshot
    ) -> contents.Content | None:
        """What the next response of a type must hold, possibly nothing; None for no response."""

    @abc.abstractmethod
    def _encode(
        self, *, version: str, type_url: str, nonce: str, content: contents.Content
    ) -> bytes:
        """The response of this variant."""

    @abc.abstractmethod
    def _warm(self, leaf: type_state.TypeState, name: str) -> None:
        """Take note that a resource was written that refers to this one, and is new or changed."""

    def _unknown(
        self, state: type_state.TypeState, view: resources.Snapshot, asked: Iterable[str]
    ) -> tuple[str, ...]:
        """The names to be told that they are missing: neither there now nor on the way."""
        names = state.unknown(view, asked)
        if self.target is None or view is self.target:
            return names
        return tuple(one for one in names if self.target.get(state.type.type_url, one) is None)

    def _order(self, url: str) -> tuple[int, str]:
        return self._states[url].order, url

    def _gated(self) -> bool:
        """True for a client that takes all clusters; only for it can the order be kept."""
        clusters = self._states.get(types.CLUSTER.type_url)
        return clusters is not None and clusters.subscription.wildcard and clusters.answered

    def _route(self) -> None:
        """Make the first step to the target the one to deliver."""
        if self.target is None:
            return
        if self._gated():
            self._enter(self._first_step(self.target))
        else:
            self._enter(self.target)
        self._advance()

    def _first_step(self, target: resources.Snapshot) -> resources.Snapshot:
        base = self.current
        refused = {
            url: state
            for url, state in self._states.items()
            if state.type.gated and state.refused is not None
        }
        stuck = {url for url, state in refused.items() if state.stuck(target)}
        if types.CLUSTER.type_url in stuck:
            return transition.hold(base, target)
        changed = refused.keys() - stuck
        if changed:
            if self._settled is resources.Snapshot.EMPTY:
                return transition.straight(base, target)
            # A bad cluster must not stay in the union: what was refused was not reached.
            base = transition.rollback(self._settled, base, frozenset(changed))
        if base is resources.Snapshot.EMPTY:
            return target
        step = transition.next_step(base, target)
        if not (transition.only_adds(base, step) or (not changed and self._may_go_to(step))):
            step = transition.hold(base, target)  # `_advance` goes on from there
        if any(refused[url].stuck(base) and refused[url].stuck(step) for url in changed):
            # What is refused had been accepted before, so the way leads nowhere.
            return transition.straight(self.current, target)
        return step

    def _enter(self, step: resources.Snapshot) -> None:
        """Deliver a step; types that it does not change for this client are settled."""
        self.current = step
        for state in self._states.values():
            self._look(state)

    def _look(self, state: type_state.TypeState) -> None:
        """Mark a type dirty if something must be written for the present step.

        Not while a response is unacknowledged: the answer makes this look again.
        """
        if self.target is None or state.outstanding:
            return
        self._dirty.pop(state.type.type_url, None)
        clusters = self._states.get(types.CLUSTER.type_url)
        if clusters is not None and clusters.delays(state):
            self._waiting.add(state.type.type_url)
            return
        content = self._content(state, self.current)
        if content is not None:
            self._dirty[state.type.type_url] = content
            return
        if state.claimed and state.subscription.wildcard:
            state.sent_version = state.acked_version = self.current.version(state.type.type_url)
        if not state.stuck(self.current):
            state.settle(self.current)

    def _resume(self) -> None:
        """Clusters of an earlier stream are up to date: now their users, then what is gone."""
        clusters = self._states.get(types.CLUSTER.type_url)
        if clusters is None or clusters.resuming or self.target is None:
            return
        while self._waiting:
            self._look(self._states[self._waiting.pop()])
        if clusters.leftover and self._users_reached():
            clusters.doubt |= clusters.gone(self.current)
            clusters.leftover.clear()
            self._look(clusters)

    def _advance(self) -> None:
        """Go on to the next step when the present one is acknowledged."""
        self._resume()
        while self.target is not None:
            if self._gated() and self._reached():
                self._settled = self.current
            step = transition.next_step(self.current, self.target)
            if self.current is self.target or not self._may_go_to(step):
                return
            self._enter(step)

    def _may_go_to(self, step: resources.Snapshot) -> bool:
        """True when a step may follow the present one: that is acknowledged.

        Listeners or routes that are refused, and would be again, stay as they were and hold up
        nothing but the end of what they may use.
        """
        owing = [state for state in self._states.values() if state.type.gated and self._owes(state)]
        if not owing:
            return True
        return not transition.takes_away(self.current, step) and all(
            self._stays(state) for state in owing
        )

    def _stays(self, state: type_state.TypeState) -> bool:
        url = state.type.type_url
        waits = state.outstanding or url in self._dirty or url == types.CLUSTER.type_url
        return not waits and self.target is not None and state.stuck(self.target)

    def _reached(self) -> bool:
        """True when every gated type of the present step is acknowledged."""
        return not any(self._owes(state) for state in self._states.values() if state.type.gated)

    def _users_reached(self) -> bool:
        """True when listeners and routes of the present step are acknowledged."""
        return not any(
            self._owes(state)
            for state in self._states.values()
            if state.type.gated and state.type.type_url != types.CLUSTER.type_url
        )

    def _owes(self, state: type_state.TypeState) -> bool:
        return state.outstanding or state.refused is not None or state.type.type_url in self._dirty

    def _write(self, state: type_state.TypeState, content: contents.Content) -> Response:
        """Build the next response of a type."""
        url, view = state.type.type_url, self.current
        parents = any(one.references for one in content.changed)
        fresh = state.missing(view).changed if parents and state.answered else content.changed
        version = view.version(url)
        state.write(view, version, content)
        if parents:
            self._warm_leaves(fresh)
        return Response(
            type_url=url,
            nonce=state.nonce,
            version=version,
            body=self._encode(version=version, type_url=url, nonce=state.nonce, content=content),
            resources=len(content.changed),
            removed=len(content.removed),
            missing=len(content.missing),
        )

    def _warm_leaves(self, parents: Iterable[resources.Resource]) -> None:
        """Envoy warms a changed resource anew, with what it refers to (envoyproxy/envoy#13009)."""
        for parent in parents:
            for url, name in parent.references:
                leaf = self._states.get(url)
                if leaf is not None and leaf.answered and leaf.subscription.covers(name):
                    self._warm(leaf, name)

    def _state(self, type_url: str) -> tuple[type_state.TypeState, bool]:
        """The state of the type that a request is about, and whether it is new."""
        type_url = requests.type_of(type_url, default=self._default_type)
        new = type_url not in self._states
        if new:
            self._states[type_url] = type_state.TypeState(types.of(type_url, self._table))
        return self._states[type_url], new

    def _answered(self, state: type_state.TypeState, refusal: str | None) -> Acked | Nacked:
        """Take the client's answer to the newest response of a type."""
        url, nonce = state.type.type_url, state.nonce
        if refusal is None:
            state.acknowledge()
            return Acked(type_url=url, nonce=nonce)
        refusal = refusal or "refused without a reason"
        state.refuse(refusal)
        if state.type.gated:
            # The way to the target may have gone on from what is refused now.
            self._route()
        return Nacked(type_url=url, nonce=nonce, message=refusal)
