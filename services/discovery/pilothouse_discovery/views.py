# SPDX-License-Identifier: Apache-2.0
"""What a config source is served: authored objects in force, and the status of its own.

A source sees authored objects only, never derived ones, so that no source waits for another in a
circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pilothouse.adapters.rpc import trace_metadata
from pilothouse.api.status.v1alpha1 import status_pb2
from pilothouse.config import codec, objects, status
from pilothouse.model import keys
from pilothouse.xds import resources, types
from pilothouse_discovery import statuses


class AuthoredView:
    """The authored objects in force, as a layer.

    An object that did not change keeps its resource and its trace.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._configs: list[objects.Config] = []
        self._resources: list[resources.Resource] = []
        """Of these objects, in their order."""
        self.layer = resources.Layer.of(())

    def update(self, configs: Iterable[objects.Config], *, traceparent: str) -> None:
        """Take the objects in force.

        What is new or changed carries the trace of the present change.
        """
        now, before, made = [*configs], self._configs, self._resources
        # Of thousands of objects few are others, and mostly they have the same places.
        pairs = zip(now, before, strict=False)
        others = [n for n, (one, old) in enumerate(pairs) if one is not old]
        if len(now) == len(before) and all(now[n].key == before[n].key for n in others):
            fresh = {n: _resource(now[n], traceparent) for n in others if now[n] != before[n]}
            if fresh:
                self._resources = [*made]
                for n, one in fresh.items():
                    self._resources[n] = one
                self.layer = self.layer.replacing(tuple((made[n], fresh[n]) for n in fresh))
        else:
            known = {old.key: (old, one) for old, one in zip(before, made, strict=True)}
            self._resources = [
                there[1]
                if (there := known.get(config.key)) is not None and there[0] == config
                else _resource(config, traceparent)
                for config in now
            ]
            if self._resources != made:
                self.layer = resources.Layer.of(self._resources)
        self._configs = now


def _resource(config: objects.Config, traceparent: str) -> resources.Resource:
    type_url, name, body = codec.encode(config)
    return resources.Resource.of(
        type_url, name, body, origins=(config.key,), metadata=trace_metadata.encode(traceparent)
    )


class StatusView:
    """The statuses of objects, as layers, one for each source.

    A status that is equal keeps its resource, and a layer in which all are keeps being that layer:
    of thousands of objects a change concerns a few, and statuses are told fifty times a second.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._known: dict[keys.ObjectKey, tuple[statuses.ObjectState, resources.Resource]] = {}
        self._layers: dict[str, tuple[tuple[resources.Resource, ...], resources.Layer]] = {}

    def layer(
        self, states: Mapping[keys.ObjectKey, statuses.ObjectState], *, source: str
    ) -> resources.Layer:
        """The status of the objects that a source gave, and of those that they come from."""
        given = [state for state in states.values() if state.source == source]
        wanted = {state.key for state in given} | {
            origin for state in given for origin in state.origins
        }
        parts = tuple(self._resource(states[key]) for key in sorted(wanted) if key in states)
        known = self._layers.get(source)
        if known is None or known[0] != parts:
            known = self._layers[source] = (parts, resources.Layer.of(parts))
        if len(self._known) > 2 * len(states):
            self._known = {key: one for key, one in self._known.items() if key in states}
        return known[1]

    def _resource(self, state: statuses.ObjectState) -> resources.Resource:
        known = self._known.get(state.key)
        if known is not None and known[0] == state:
            return known[1]
        body = encode_status(state)
        made = resources.Resource.of(types.OBJECT_STATUS.type_url, str(state.key), body)
        self._known[state.key] = (state, made)
        return made


def encode_status(state: statuses.ObjectState) -> bytes:
    """One object's status as the body of a resource."""
    return message(state).SerializeToString(deterministic=True)


def message(state: statuses.ObjectState) -> status_pb2.ObjectStatus:
    """One object's status as the api message."""
    counts = state.counts
    return status.object_status(
        state.key,
        state.conditions,
        generation=state.generation,
        counts=status_pb2.ProxyCounts(
            needed=counts.needed, acked=counts.acked, refused=counts.refused
        ),
    )
