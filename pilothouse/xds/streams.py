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
import itertools
from collections.abc import Iterable, Mapping

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.xds import content as contents
from pilothouse.xds import moves, requests, resources, standing, type_state, types


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


Response = contents.Response


PIECE = 500
"""Resources that are encoded at a time: 2 to 4 ms."""


class Stream(standing.Standing):
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
        super().__init__()
        self._table = table
        self._default_type = default_type
        self._early: dict[str, set[str]] = {}
        """Type URL to names that changed resources refer to, which were written before the type was
        asked for, to a client that had others before."""
        self.limit: int | None = None
        """Bytes of resources that a response may hold, if it can be split; None for any number."""
        self.node: base_pb2.Node | None = None
        """From the first request."""

    @abc.abstractmethod
    def receive(self, request: bytes) -> tuple[Event, ...]:
        """Take an encoded request.

        Raises:
            requests.ProtocolError: the client broke the protocol.
        """

    def update(self, snapshot: resources.Snapshot) -> None:
        """Take a new target; `poll` for what is to be written."""
        if snapshot is self.target:
            return
        self.leave()
        old = self._target
        way = None
        if old is not None and (self._resting or self._rests()):
            self._resting = True
            way = moves.way(old, snapshot)
        if way is None:
            self._resting = False
            self._target = snapshot
            self._route()
            return
        known, more = way
        asked = self._asks()
        key = (asked, *more) if more else asked
        move = known.get(key)
        if move is not None:
            self._follow(move, snapshot)
            return
        self._resting = False
        self._target = snapshot
        self._route()
        if self._step is snapshot:
            reached = self._settled is snapshot
            known[key] = moves.Move(contents=dict(self._dirty), reached=reached)

    def poll(self) -> Response | None:
        """The next response to write, or None."""
        if not self._dirty:
            return None
        url = self._next()
        return self._write(self._states[url], self._dirty.pop(url))

    def prepare(self) -> bool:
        """Encode a piece of what `poll` will give; True while there is more to be done ahead.

        So that who serves several streams can let others have a turn in between. A resource is
        encoded once, for all streams; small responses need nothing.
        """
        if not self._dirty:
            return False
        content = self._dirty[self._next()]
        if content.response is not None:
            return False
        number = len(content.changed) + len(content.rest) - content.framed
        if number <= PIECE:
            return False
        later = content.framed + PIECE
        for one in itertools.islice(
            itertools.chain(content.changed, content.rest), content.framed, later
        ):
            self._frame(one)
            _ = one.digest  # kept with it, for the version of the whole
        content.framed = later
        return True

    @property
    def ready(self) -> bool:
        """True when `poll` has something."""
        return bool(self._dirty)

    @abc.abstractmethod
    def _content(
        self, state: type_state.TypeState, view: resources.Snapshot
    ) -> contents.Content | None:
        """What the next response of a type must hold, possibly nothing; None for no response."""

    @staticmethod
    @abc.abstractmethod
    def _frame(resource: resources.Resource) -> bytes:
        """A resource as this variant writes it; made once."""

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
        if self._target is None or view is self._target:
            return names
        return tuple(one for one in names if self._target.get(state.type.type_url, one) is None)

    def _follow(self, move: moves.Move, target: resources.Snapshot) -> None:
        """Go where another stream went that was at rest where this one is."""
        self._target = self._step = target
        if move.reached:
            self._settled = target
        if move.contents:
            self._resting = False
            self._dirty.update(move.contents)
        for url, state in self._states.items():
            if url not in move.contents:
                state.held = state.acked = target

    def _next(self) -> str:
        if len(self._dirty) == 1:
            return next(iter(self._dirty))
        return min(self._dirty, key=self._order)

    def _order(self, url: str) -> tuple[int, str]:
        return self._states[url].order, url

    def _look(self, state: type_state.TypeState) -> None:
        """Mark a type dirty if something must be written for the present step.

        Not while a response is unacknowledged: the answer makes this look again.
        """
        if self._target is None or state.outstanding:
            return
        self._dirty.pop(state.type.type_url, None)
        if self._shares and state.rests(self._step):
            return
        clusters = self._states.get(types.CLUSTER.type_url)
        if clusters is not None and clusters.delays(state):
            self._waiting.add(state.type.type_url)
            return
        content = self._content(state, self._step)
        if content is not None:
            self._dirty[state.type.type_url] = content
            return
        if state.claimed and (state.subscription.wildcard or state.spared):
            state.sent_version = state.acked_version = self._step.version(state.type.type_url)
        if not state.stuck(self._step):
            state.settle(self._step)

    def _write(self, state: type_state.TypeState, content: contents.Content) -> Response:
        """Build the next response of a type, or take that of a stream that said the same."""
        url, view = state.type.type_url, self._step
        fresh = content.changed
        if content.parents and state.answered:
            fresh = state.missing(view).changed
        version = view.version(url)
        state.write(view, version, content)
        if content.parents:
            self._warm_leaves(fresh, early=state.returned)
        known = content.response
        if known is not None and known.nonce == state.nonce and known.version == version:
            return known
        content.response = Response(
            type_url=url,
            nonce=state.nonce,
            version=version,
            body=self._encode(version=version, type_url=url, nonce=state.nonce, content=content),
            resources=len(content.changed),
            removed=len(content.removed),
            missing=len(content.missing),
        )
        return content.response

    def _warm_leaves(self, parents: Iterable[resources.Resource], *, early: bool) -> None:
        """Envoy warms a changed resource anew, with what it refers to (envoyproxy/envoy#13009).

        ``early``: take note of it for endpoints that are not asked for yet, too.
        """
        leaves = {
            url: state
            for url, state in self._states.items()
            if not state.type.wildcard and (state.answered or state.spared)
        }
        early = early and types.ENDPOINT.type_url not in self._states
        if not (leaves or early):
            return
        for parent in parents:
            for url, name in parent.references:
                leaf = leaves.get(url)
                if leaf is not None:
                    if leaf.subscription.covers(name):
                        self._warm(leaf, name)
                elif early and url == types.ENDPOINT.type_url:
                    self._early.setdefault(url, set()).add(name)

    def _state(self, type_url: str) -> tuple[type_state.TypeState, bool]:
        """The state of the type that a request is about, and whether it is new."""
        self.leave()
        self._resting = False
        known = self._states.get(type_url)
        if known is not None:
            return known, False
        type_url = requests.type_of(type_url, default=self._default_type)
        new = type_url not in self._states
        if new:
            self._wishes = None
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
