# SPDX-License-Identifier: Apache-2.0
"""State of the world: a request lists all names, a response of a whole set all resources.

Clusters and listeners are whole sets, so absence deletes. Of the other types a response holds only
what changed, and what is missing is met with silence.
"""

from __future__ import annotations

from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import framing, resources, streams


class SotwStream(streams.Stream):
    """The server's side of a state-of-the-world stream."""

    def receive(self, request: bytes) -> tuple[streams.Event, ...]:
        """Take an encoded DiscoveryRequest.

        Raises:
            streams.ProtocolError: the client broke the protocol.
        """
        asked = streams.parse(discovery_pb2.DiscoveryRequest, request)
        self._identify(asked.node, given=asked.HasField("node"))
        url = self._type_of(asked.type_url)
        state, new = self._state(url)
        if new:
            state.subscription.replace(asked.resource_names)
            self._reconnected(state, asked.version_info)
            self._look(url, state)
            return (streams.Subscribed(type_url=url),)
        if asked.response_nonce != state.nonce:
            # The answer to the newest response will carry the newest names; this one's are older.
            # It may still have been a wish to be answered again, which that answer will not repeat.
            state.crossed = not state.type.wildcard
            return (streams.Stale(type_url=url, nonce=asked.response_nonce),)
        return self._answer(state, asked)

    def _answer(
        self, state: streams.TypeState, asked: discovery_pb2.DiscoveryRequest
    ) -> tuple[streams.Event, ...]:
        """A request that carries the newest nonce: an answer, new names, or both."""
        url = state.type.type_url
        answers, wildcard = state.outstanding, state.subscription.wildcard
        added = state.subscription.replace(asked.resource_names)
        again = state.crossed or not answers
        state.crossed = False
        if again and not added and not state.type.wildcard:
            # The same words again: Envoy wants endpoints for a cluster that it warms anew.
            added = set(state.subscription.names)
        if state.type.wildcard and (added or state.subscription.wildcard != wildcard):
            state.answered = False
        state.forced |= added
        events: list[streams.Event] = []
        if answers:
            refused = asked.HasField("error_detail")
            events.append(
                self._refuse(state, asked.error_detail.message)
                if refused
                else self._acknowledge(state)
            )
        if added:
            self._look(url, state)
            events.append(streams.Subscribed(type_url=url))
        return tuple(events)

    def _reconnected(self, state: streams.TypeState, version: str) -> None:
        """Take a first request that says what the client holds."""
        if self.target is None or not version:
            if version:
                state.claimed = {"": version}
            return
        self._skip_if_held(state, version)

    def _skip_if_held(self, state: streams.TypeState, version: str) -> bool:
        pure = state.subscription.wildcard and not state.subscription.names
        if not (pure and version == self.current.version(state.type.type_url)):
            return False
        state.claimed.clear()
        state.settle(self.current)
        state.sent_version = state.acked_version = version
        return True

    def _respond(
        self, state: streams.TypeState, view: resources.Snapshot
    ) -> streams.Response | None:
        url = state.type.type_url
        if not state.answered and state.claimed and self._skip_if_held(state, state.claimed[""]):
            self._advance()
            return None
        if state.type.wildcard:
            if state.answered and not state.forced and not state.difference(view):
                return None
            sent = list(state.wanted(view))
        else:
            changed = state.wanted(view) if not state.answered else state.difference(view).changed
            named = {one.name: one for one in changed}
            for name in state.forced:
                resource = view.get(url, name)
                if resource is not None and state.subscription.covers(name):
                    named[name] = resource
            sent = [named[name] for name in sorted(named)]
            if not sent:
                # Nothing can be said of what is missing; once it exists it is a change.
                state.forced.clear()
                if state.refused is None:
                    state.settle(view)
                return None
        version = view.version(url)
        nonce = self._written(state, view, version)
        return streams.Response(
            type_url=url,
            nonce=nonce,
            version=version,
            body=framing.sotw_response(
                version=version, type_url=url, nonce=nonce, frames=(one.sotw_frame for one in sent)
            ),
            resources=len(sent),
        )
