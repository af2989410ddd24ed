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
        self._known: dict[keys.ObjectKey, tuple[objects.Config, resources.Resource]] = {}
        self.layer = resources.Layer.of(())

    def update(self, configs: Iterable[objects.Config], *, traceparent: str) -> None:
        """Take the objects in force.

        What is new or changed carries the trace of the present change.
        """
        now: dict[keys.ObjectKey, tuple[objects.Config, resources.Resource]] = {}
        for config in configs:
            known = self._known.get(config.key)
            now[config.key] = (
                known
                if known is not None and known[0] == config
                else (config, _resource(config, traceparent))
            )
        if {key: one for key, (_, one) in now.items()} != {
            key: one for key, (_, one) in self._known.items()
        }:
            self.layer = resources.Layer.of(one for _, one in now.values())
        self._known = now


def _resource(config: objects.Config, traceparent: str) -> resources.Resource:
    type_url, name, body = codec.encode(config)
    return resources.Resource.of(
        type_url, name, body, origins=(config.key,), metadata=trace_metadata.encode(traceparent)
    )


def status_layer(
    states: Mapping[keys.ObjectKey, statuses.ObjectState], *, source: str
) -> resources.Layer:
    """The status of the objects that a source gave, and of the objects those were derived from."""
    given = [state for state in states.values() if state.source == source]
    wanted = {state.key for state in given} | {
        origin for state in given for origin in state.origins
    }
    return resources.Layer.of(
        resources.Resource.of(types.OBJECT_STATUS.type_url, str(key), encode_status(states[key]))
        for key in sorted(wanted)
        if key in states
    )


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
