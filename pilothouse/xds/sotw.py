# SPDX-License-Identifier: Apache-2.0
"""State of the world: a request lists all names, a response of a whole set all resources.

Clusters and listeners are whole sets, so absence deletes. Of the other types a response holds only
what changed. A name that nobody has is told once, among the errors; later absence means nothing.

A client that names its clusters has the names from routes, and drops a name when the last call that
may go there is over. Until then the cluster stays in its responses, though nobody has it any more:
to leave it out would be to delete it under those calls. Besides, @grpc/grpc-js-xds 1.14 never takes
a resource back that was deleted and returns unchanged (https://github.com/grpc/grpc-node/pull/3074).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence

from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import content as contents
from pilothouse.xds import framing, requests, resources, streams, subscription, type_state, types

_USERS = frozenset({types.LISTENER.type_url, types.ROUTE.type_url})
"""Types that lead to clusters."""


class SotwStream(streams.Stream):
    """The server's side of a state-of-the-world stream."""

    def __init__(
        self,
        *,
        table: Mapping[str, types.ResourceType] = types.BY_URL,
        default_type: str | None = None,
    ) -> None:
        """Begin a stream, as any."""
        super().__init__(table=table, default_type=default_type)
        self._named: dict[str, resources.Resource] = {}
        """The newest that was held of each cluster that is named, also if it is gone since."""

    def receive(self, request: bytes) -> tuple[streams.Event, ...]:
        """Take an encoded DiscoveryRequest.

        Raises:
            requests.ProtocolError: the client broke the protocol.
        """
        asked = requests.parse(discovery_pb2.DiscoveryRequest, request)
        self.node = requests.identify(self.node, asked.node, given=asked.HasField("node"))
        state, new = self._state(asked.type_url)
        url = state.type.type_url
        if new:
            state.subscription.replace(asked.resource_names)
            if asked.version_info:
                state.claim({"": asked.version_info})
            events: tuple[streams.Event, ...] = (streams.Subscribed(type_url=url),)
        elif asked.response_nonce != state.nonce:
            # The answer to the newest response will carry the newest names; these are older. But
            # what that answer will not tell is a wish to be answered again, and that names were
            # dropped and are wanted anew.
            left_out = state.subscription.without(asked.resource_names)
            state.crossed = (state.crossed or frozenset()) | left_out
            return (streams.Stale(type_url=url, nonce=asked.response_nonce),)
        else:
            events = self._answer(state, asked)
        self._look(state)
        self._advance()
        return events

    def _answer(
        self, state: type_state.TypeState, asked: discovery_pb2.DiscoveryRequest
    ) -> tuple[streams.Event, ...]:
        """A request that carries the newest nonce: an answer, new names, or both."""
        events: list[streams.Event] = []
        again = state.crossed is not None or not state.outstanding
        subscribed = self._resubscribe(state, asked.resource_names, again=again)
        state.crossed = None
        if state.outstanding:
            refused = asked.HasField("error_detail")
            events.append(self._answered(state, asked.error_detail.message if refused else None))
        if subscribed:
            events.append(streams.Subscribed(type_url=state.type.type_url))
        return tuple(events)

    def _resubscribe(
        self, state: type_state.TypeState, names: Iterable[str], *, again: bool
    ) -> bool:
        """Take the full list of names; return whether it asks for anything."""
        before, was_wildcard = state.subscription.names, state.subscription.wildcard
        left_out = state.crossed or frozenset()
        added = state.subscription.replace(names) | (left_out & state.subscription.names)
        state.told -= added
        still_wildcard = was_wildcard and subscription.WILDCARD not in left_out
        everything = state.resubscribed(was_wildcard=still_wildcard)
        if state.type.wildcard:
            state.whole = state.whole or bool(added)
            return bool(added) or everything
        wanted = state.subscription.names
        # Envoy asks for what it warms anew with the names of before, or along with new ones.
        state.rewarm &= wanted
        repeated = wanted if again and wanted == before else state.rewarm
        state.forced |= added | repeated
        return bool(added or repeated) or everything

    def _content(
        self, state: type_state.TypeState, view: resources.Snapshot
    ) -> contents.Content | None:
        if state.type.wildcard:
            return self._whole(state, view)
        changed = state.wanted(view) if state.whole else state.missing(view).changed
        named = {one.name: one for one in changed}
        for name in state.forced - named.keys():
            resource = view.get(state.type.type_url, name)
            if resource is not None and state.subscription.covers(name):
                named[name] = resource
        asked = state.subscription.names if state.whole else state.forced
        missing = self._unknown(state, view, asked)
        if not named and not missing:
            return None
        changed = [named[name] for name in sorted(named)]
        room = self._room(changed)
        return contents.Content(
            changed=tuple(changed[:room]),
            missing=missing,
            rest=changed[room:],
        )

    def _whole(
        self, state: type_state.TypeState, view: resources.Snapshot
    ) -> contents.Content | None:
        if state.whole and self._holds(state, view):
            return None
        kept = self._keep(state, view)
        if not state.whole:
            difference = state.missing(view)
            if not difference.changed and kept.keys() - state.doubt >= set(difference.removed):
                return None
        wanted = sorted((*state.wanted(view), *kept.values()), key=operator.attrgetter("name"))
        missing = self._unknown(state, view, state.subscription.names - kept.keys())
        return contents.Content(changed=tuple(wanted), missing=missing)

    def _keep(
        self, state: type_state.TypeState, view: resources.Snapshot
    ) -> Mapping[str, resources.Resource]:
        """What goes with a view, and must stay for as long as it is asked for."""
        url, wanted = state.type.type_url, state.subscription
        if state.type is not types.CLUSTER or wanted.wildcard or _USERS.isdisjoint(self._states):
            return {}
        held = {name: state.held.get(url, name) or self._named.get(name) for name in wanted.names}
        self._named = {name: one for name, one in held.items() if one is not None}
        return {name: one for name, one in self._named.items() if view.get(url, name) is None}

    def _room(self, changed: Sequence[resources.Resource]) -> int:
        """How many of these resources fit into a response; one at least.

        Absence says nothing of their type, so the others may come in the next one.
        """
        if self.limit is None:
            return len(changed)
        return contents.room(changed, self.limit)

    def _holds(self, state: type_state.TypeState, view: resources.Snapshot) -> bool:
        """True if the client said that it holds the whole of this view already."""
        pure = state.subscription.wildcard and not state.subscription.names
        return pure and state.claimed.get("") == view.version(state.type.type_url)

    @staticmethod
    def _frame(resource: resources.Resource) -> bytes:
        return resource.sotw_frame

    def _encode(
        self, *, version: str, type_url: str, nonce: str, content: contents.Content
    ) -> bytes:
        frames = (one.sotw_frame for one in content.changed)
        return framing.sotw_response(
            version=version,
            type_url=type_url,
            nonce=nonce,
            frames=frames,
            errors=contents.errors(type_url, content),
        )

    def _warm(self, leaf: type_state.TypeState, name: str) -> None:
        leaf.rewarm.add(name)
