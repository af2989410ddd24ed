# SPDX-License-Identifier: Apache-2.0
"""Delta: requests add and remove names, responses carry what changed and name what is gone.

A name that is asked for is always answered, with the resource or among the removed, and its
subscription stays, so that it is sent once it exists. On a reconnect the client says what it holds:
what differs is sent, what is gone is named.
"""

from __future__ import annotations

from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import framing, resources, streams, types

_LEAVES = frozenset({types.ENDPOINT.type_url, types.SECRET.type_url})


class DeltaStream(streams.Stream):
    """The server's side of a delta stream."""

    def receive(self, request: bytes) -> tuple[streams.Event, ...]:
        """Take an encoded DeltaDiscoveryRequest.

        Raises:
            streams.ProtocolError: the client broke the protocol.
        """
        asked = streams.parse(discovery_pb2.DeltaDiscoveryRequest, request)
        self._identify(asked.node, given=asked.HasField("node"))
        url = self._type_of(asked.type_url)
        state, new = self._state(url)
        if new:
            state.claimed = dict(asked.initial_resource_versions)
        events: list[streams.Event] = []
        # A stale nonce makes this no acknowledgement, but its subscriptions count.
        must = state.subscription.change(
            add=asked.resource_names_subscribe, remove=asked.resource_names_unsubscribe, first=new
        )
        state.forced |= must
        if asked.response_nonce and not new:
            events.append(self._answer(state, asked))
        if new or must:
            events.append(streams.Subscribed(type_url=url))
            self._look(url, state)
        return tuple(events)

    def _answer(
        self, state: streams.TypeState, asked: discovery_pb2.DeltaDiscoveryRequest
    ) -> streams.Event:
        if not state.outstanding or asked.response_nonce != state.nonce:
            return streams.Stale(type_url=state.type.type_url, nonce=asked.response_nonce)
        if asked.HasField("error_detail"):
            return self._refuse(state, asked.error_detail.message)
        return self._acknowledge(state)

    def _respond(
        self, state: streams.TypeState, view: resources.Snapshot
    ) -> streams.Response | None:
        url = state.type.type_url
        first = not state.answered
        sent, removed = self._first(state, view) if first else self._later(state, view)
        for name in state.forced:
            if not state.subscription.covers(name):
                continue
            resource = view.get(url, name)
            if resource is not None:
                sent[name] = resource
            else:
                removed.add(name)
        if (
            not sent
            and not removed
            and (not first or state.claimed or not state.subscription.wildcard)
        ):
            state.forced.clear()
            if first and state.claimed:
                state.sent_version = state.acked_version = view.version(url)
            state.claimed.clear()
            if state.refused is None:
                state.settle(view)
            self._advance()
            return None
        self._rewarm(state, sent)
        ordered = [sent[name] for name in sorted(sent)]
        version = view.version(url)
        nonce = self._written(state, view, version)
        return streams.Response(
            type_url=url,
            nonce=nonce,
            version=version,
            body=framing.delta_response(
                version=version,
                type_url=url,
                nonce=nonce,
                frames=(one.delta_frame for one in ordered),
                removed=sorted(removed),
            ),
            resources=len(ordered),
            removed=len(removed),
        )

    def _first(
        self, state: streams.TypeState, view: resources.Snapshot
    ) -> tuple[dict[str, resources.Resource], set[str]]:
        """What differs from what the client says it holds; names asked for are always sent."""
        sent = {
            one.name: one
            for one in state.wanted(view)
            if state.claimed.get(one.name) != one.version or one.name in state.subscription.names
        }
        gone = {name for name in state.claimed if view.get(state.type.type_url, name) is None}
        return sent, gone

    def _later(
        self, state: streams.TypeState, view: resources.Snapshot
    ) -> tuple[dict[str, resources.Resource], set[str]]:
        difference = state.difference(view)
        return {one.name: one for one in difference.changed}, set(difference.removed)

    def _rewarm(self, state: streams.TypeState, sent: dict[str, resources.Resource]) -> None:
        """Have the leaves of changed resources sent again.

        Envoy warms a changed cluster anew, and in delta it asks nobody for the endpoints that it
        has a subscription for (envoyproxy/envoy#13009).
        """
        if state.type.type_url in _LEAVES:
            return
        for resource in sent.values():
            for url, name in resource.references:
                leaf = self._states.get(url) if url in _LEAVES else None
                if leaf is not None and leaf.answered and leaf.subscription.covers(name):
                    leaf.forced.add(name)
                    self._dirty.add(url)
