# SPDX-License-Identifier: Apache-2.0
"""Delta: requests add and remove names, responses carry what changed and name what is gone.

A name that is asked for is always answered, with the resource or among the removed, and its
subscription stays, so that it is sent once it exists. On a reconnect the client says what it holds:
what differs is sent, what is gone is named.

Virtual hosts, which Envoy asks for when a request comes for one, go by ``ROUTE/HOST``, where ROUTE
is a route configuration's name. That request waits for an answer that has the name among its
aliases, so a host that nobody has is answered too, without a body; and a route configuration that
is new to Envoy may have lost its hosts
(https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_conn_man/vhds).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import content as contents
from pilothouse.xds import framing, moves, requests, resources, streams, type_state, types

_LEAVES = frozenset({types.ENDPOINT.type_url, types.SECRET.type_url})
_HOST = types.VIRTUAL_HOST.type_url


class DeltaStream(streams.Stream):
    """The server's side of a delta stream."""

    _shares = True
    room: ClassVar[int] = 4_000_000
    """Bytes of endpoints that a response holds at most. Equal for all streams, as they share
    responses; making and copying so many takes 2 to 5 ms."""

    def receive(self, request: bytes) -> tuple[streams.Event, ...]:
        """Take an encoded DeltaDiscoveryRequest.

        Raises:
            requests.ProtocolError: the client broke the protocol.
        """
        asked = requests.parse(discovery_pb2.DeltaDiscoveryRequest, request)
        if self.node is None or asked.HasField("node"):
            self.node = requests.identify(self.node, asked.node, given=asked.HasField("node"))
        state, new = self._state(asked.type_url)
        if new:
            state.claim(asked.initial_resource_versions)
            if state.type is types.CLUSTER:
                state.leftover |= state.claimed.keys()
        events: list[streams.Event] = []
        # A stale nonce makes this no acknowledgement, but its subscriptions count.
        named = asked.resource_names_subscribe or asked.resource_names_unsubscribe
        wishes = self._subscribe(state, asked, new=new) if new or named else False
        if named:
            self._wishes = None
        if asked.response_nonce and not new:
            events.append(self._answer(state, asked))
        if new or wishes:
            events.append(streams.Subscribed(type_url=state.type.type_url))
        self._look(state)
        self._advance()
        return tuple(events)

    def _spares(self, state: type_state.TypeState, names: set[str]) -> bool:
        """True when a client that comes back needs no answer for the names that it holds.

        Envoy takes the routes that it has for whatever refers to them. For endpoints a warming
        cluster waits, whatever was there before (https://github.com/envoyproxy/envoy/issues/22418).
        But while there is one, requests for clusters are kept back: who asks for all clusters first
        has none (https://github.com/envoyproxy/envoy/issues/36951); and who lacks some endpoints
        may be starting still. Decided in docs/adr/0040.
        """
        clusters = self._states.get(types.CLUSTER.type_url)
        if clusters is None or not (clusters.returned and clusters.subscription.wildcard):
            return False
        spares = state.type in (types.ENDPOINT, types.ROUTE)
        return spares and state.claimed.keys() >= names

    def _subscribe(
        self, state: type_state.TypeState, asked: discovery_pb2.DeltaDiscoveryRequest, *, new: bool
    ) -> bool:
        """Take additions and removals; return whether anything must be answered."""
        was_wildcard = state.subscription.wildcard
        must = state.subscription.change(
            add=asked.resource_names_subscribe, remove=asked.resource_names_unsubscribe, first=new
        )
        everything = state.resubscribed(was_wildcard=was_wildcard)
        if new and self._spares(state, must):
            state.spared = True
            # Unless a changed cluster refers to it, which was written before this request came.
            must = must & self._early.pop(state.type.type_url, frozenset())
        state.forced |= must
        if state.told:
            state.told -= must
        return bool(must) or everything

    def _answer(
        self, state: type_state.TypeState, asked: discovery_pb2.DeltaDiscoveryRequest
    ) -> streams.Event:
        if not state.outstanding or asked.response_nonce != state.nonce:
            return streams.Stale(type_url=state.type.type_url, nonce=asked.response_nonce)
        refused = asked.HasField("error_detail")
        return self._answered(state, asked.error_detail.message if refused else None)

    def _content(
        self, state: type_state.TypeState, view: resources.Snapshot
    ) -> contents.Content | None:
        if not (state.whole or state.forced):
            return self._plain(state, view)
        if state.parted is not None and state.goes_on(view):
            before = state.parted
            if before.following is None:
                before.following = self._part(state, before.rest)
            return before.following
        firsts = moves.firsts(view, state) if self._shares and view is self._target else None
        if firsts is None:
            return self._asked(state, view)
        names = state.subscription.shared()
        known = firsts.get(names)
        if known is None:
            known = firsts[names] = self._asked(state, view)
        return known

    def _asked(
        self, state: type_state.TypeState, view: resources.Snapshot
    ) -> contents.Content | None:
        """What a client is to be told that asked for something, or has just come."""
        sent, removed = self._first(state, view) if state.whole else self._later(state, view)
        if not state.type.retracted:
            removed.clear()
        for name in state.forced - sent.keys():
            if not state.subscription.covers(name):
                continue
            resource = view.get(state.type.type_url, name)
            if resource is not None:
                sent[name] = resource
            else:
                removed.add(name)
        if not sent and not removed:
            # Even nothing is an answer: for a client that asked for everything and holds nothing;
            # and before clusters go, as by its acknowledgement their users have been asked for.
            said = not state.claimed or state.gone(view)
            empty = state.whole and state.subscription.wildcard and said
            return contents.Content() if empty else None
        changed = tuple(map(sent.__getitem__, sorted(sent)))
        missing = self._unknown(state, view, state.forced)
        return self._part(state, changed, removed=tuple(sorted(removed)), missing=missing)

    def _plain(
        self, state: type_state.TypeState, view: resources.Snapshot
    ) -> contents.Content | None:
        """What differs, as most responses are: nobody asked for anything."""
        difference = state.missing(view)
        removed = difference.removed if state.type.retracted else ()
        if not difference.changed and not removed:
            return None
        return self._part(state, difference.changed, removed=removed)

    def _part(
        self,
        state: type_state.TypeState,
        changed: Sequence[resources.Resource],
        *,
        removed: Sequence[str] = (),
        missing: Sequence[str] = (),
    ) -> contents.Content:
        """As many endpoints as are written in one go; the others come in the next response.

        Envoy waits for those of each cluster by themselves. Of other types it takes the first
        response for all there is.
        """
        size = contents.room(changed, self.room) if state.type is types.ENDPOINT else len(changed)
        return contents.Content(
            changed=changed[:size],
            removed=removed,
            missing=missing,
            rest=changed[size:],
        )

    def _first(
        self, state: type_state.TypeState, view: resources.Snapshot
    ) -> tuple[dict[str, resources.Resource], set[str]]:
        """What differs from what the client says it holds.

        Whole sets are compared, at 30 us for a thousand names where one by one takes 400.
        """
        url, claimed, wanted = state.type.type_url, state.claimed, state.subscription
        gone = set(() if state.leftover else claimed) | state.doubt
        sent: dict[str, resources.Resource] = {}
        for layer in view.layers:
            named = layer.resources(url)
            if not named:
                continue
            names = named.keys() if wanted.wildcard else type_state.common(wanted.names, named)
            if not claimed:
                gone -= named.keys()
                sent.update(named if len(names) == len(named) else {n: named[n] for n in names})
                continue
            versions = layer.versions(url)
            gone -= named.keys()
            if versions.items() <= claimed.items():
                continue
            for name in names:
                if claimed.get(name) != versions[name]:
                    sent[name] = named[name]
        return sent, gone

    def _later(
        self, state: type_state.TypeState, view: resources.Snapshot
    ) -> tuple[dict[str, resources.Resource], set[str]]:
        difference = state.missing(view)
        return {one.name: one for one in difference.changed}, set(difference.removed)

    def _write(self, state: type_state.TypeState, content: contents.Content) -> streams.Response:
        response = super()._write(state, content)
        hosts = self._states.get(_HOST) if state.type is types.ROUTE else None
        if hosts is not None:
            routes = {one.name for one in content.changed}
            hosts.forced |= {
                one.name
                for one in hosts.wanted(self._step)
                if one.name.rpartition("/")[0] in routes
            }
            self._look(hosts)
        return response

    @staticmethod
    def _frame(resource: resources.Resource) -> bytes:
        return resource.delta_frame

    def _encode(
        self, *, version: str, type_url: str, nonce: str, content: contents.Content
    ) -> bytes:
        if type_url == _HOST:
            frames = [framing.virtual_host(*_parts(one)) for one in content.changed]
            frames += map(framing.no_virtual_host, content.missing)
            removed = [name for name in content.removed if name not in content.missing]
            return framing.delta_response(
                version=version, type_url=type_url, nonce=nonce, frames=frames, removed=removed
            )
        return framing.delta_response(
            version=version,
            type_url=type_url,
            nonce=nonce,
            frames=(one.delta_frame for one in content.changed),
            removed=content.removed,
            errors=contents.errors(type_url, content),
        )

    def _warm(self, leaf: type_state.TypeState, name: str) -> None:
        # In delta Envoy asks nobody for what it has a subscription for, so it is sent again.
        if leaf.type.type_url in _LEAVES:
            leaf.forced.add(name)
            self._look(leaf)


def _parts(host: resources.Resource) -> tuple[str, str, str, bytes]:
    return host.name, host.version, host.type_url, host.body
