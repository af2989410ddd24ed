# SPDX-License-Identifier: Apache-2.0
"""A config store that is read over the network, by the same delta xDS that Envoy speaks.

Discovery reads ingress and egress by it, those read discovery, and anyone may write a further
source. What was received last stays in force while the source is away; a resource that cannot be
read is refused by name, keeps its last good version, and costs its neighbours nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NoReturn

import grpc
from google.protobuf import message

from pilothouse.adapters.rpc import backoff, delta_call, serving, trace_metadata
from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.api.status.v1alpha1 import status_pb2
from pilothouse.config import codec, objects, schema, status
from pilothouse.model import changes, keys
from pilothouse.xds import client, types

_STATUS = types.OBJECT_STATUS.type_url

Notify = Callable[[changes.Change], None]
Statuses = Mapping[keys.ObjectKey, status_pb2.Status]


class ConfigStreamClient:
    """Implements `pilothouse.config.objects.ConfigStore`; `run` does the work."""

    def __init__(
        self,
        name: str,
        address: serving.Address,
        *,
        node_id: str,
        kinds: Collection[str] = tuple(schema.KINDS),
        statuses: bool = False,
        credentials: grpc.ChannelCredentials | None = None,
        delays: backoff.Backoff | None = None,
    ) -> None:
        """Name a source; nothing is connected before `run`.

        Args:
            name: of the source; becomes the `source` of its configs.
            address: where it serves.
            node_id: who asks, `source~IP~NAME.NAMESPACE~DOMAIN` for a service of ours.
            kinds: what to ask for, by names of `schema.KINDS`.
            statuses: ask for ObjectStatus too.
            credentials: None speaks plain text.
            delays: between tries to connect; by default 0.2 to 10 s.
        """
        self.name = name
        self._awaited = {schema.KINDS[kind].type_url for kind in kinds}
        subscriptions = dict.fromkeys([*self._awaited, *([_STATUS] if statuses else [])])
        self._delta = client.DeltaClient(
            node=base_pb2.Node(id=node_id), subscriptions=subscriptions, accept=self._accept
        )
        self._call = delta_call.DeltaCall(
            peer=name,
            address=str(address),
            delta=self._delta,
            take=self._take,
            credentials=credentials,
            delays=delays,
        )
        self._state = objects.StoreState(synced=not self._awaited)
        self._statuses: dict[keys.ObjectKey, status_pb2.Status] = {}
        self._read: dict[str, objects.Config | status_pb2.ObjectStatus] = {}
        self._refused: dict[str, str] = {}
        self._problems: dict[str, Mapping[str, str]] = {}
        self._subscribers: list[Notify] = []
        self._status_subscribers: list[Notify] = []
        self.refusals = 0
        """Resources refused so far."""

    async def run(self) -> NoReturn:
        """Keep up with the source, until cancelled."""
        await self._call.run()

    @property
    def connected(self) -> bool:
        """True while the source answers."""
        return self._call.connected

    @property
    def error(self) -> str:
        """Why the source does not answer; empty when it does."""
        return self._call.error

    def current(self) -> objects.StoreState:
        """What the source holds, as far as known; synced once every kind was answered."""
        return self._state

    def statuses(self) -> Statuses:
        """The statuses that the source gives, in key order."""
        return self._statuses

    def subscribe(self, notify: Notify) -> Callable[[], None]:
        """Call `notify` after each change of the state; the answer ends the subscription.

        One response may carry the work of several traces: it leads to a call for each, all of them
        after the state was swapped.
        """
        return _subscribe(self._subscribers, notify)

    def on_status(self, notify: Notify) -> Callable[[], None]:
        """Call `notify` after each change of the statuses; the answer ends the subscription."""
        return _subscribe(self._status_subscribers, notify)

    def _accept(self, resource: client.ReceivedResource) -> str | None:
        """Read a resource and keep it for `_take`; the reason if it cannot be read."""
        reason = self._read_one(resource)
        if reason is not None:
            self._refused[resource.name] = reason
        return reason

    def _read_one(self, resource: client.ReceivedResource) -> str | None:
        found: objects.Config | status_pb2.ObjectStatus
        try:
            if resource.type_url == _STATUS:
                found = status_pb2.ObjectStatus.FromString(resource.body)
                key = status.key_of(found.object)
            else:
                found = codec.decode(resource.type_url, resource.body, source=self.name)
                key = found.key
        except (codec.CodecError, message.DecodeError) as error:
            return str(error)
        if str(key) != resource.name:
            return f"the resource holds {key}"
        self._read[resource.name] = found
        return None

    def _take(self, update: client.ClientUpdate) -> None:
        """Swap in what a response brings, then tell."""
        read, self._read = self._read, {}
        refused, self._refused = self._refused, {}
        self.refusals += len(refused)
        # An empty response names its type in the acknowledgement only.
        answered = discovery_pb2.DeltaDiscoveryRequest.FromString(update.requests[0]).type_url
        if answered == _STATUS:
            self._take_statuses(update, read)
            return
        self._awaited.discard(answered)
        # What was refused comes again with the next response of its type, if it is still there.
        self._problems[answered] = refused
        configs = dict(self._state.configs)
        traces: dict[str, list[keys.ObjectKey]] = {}
        for resource in update.changed:
            config = read[resource.name]
            assert isinstance(config, objects.Config)  # noqa: S101 - by its type URL
            if configs.get(config.key) != config:
                configs[config.key] = config
                trace = trace_metadata.decode(resource.metadata)
                traces.setdefault(trace, []).append(config.key)
        for _, name in update.removed:
            key = _key(name)
            if configs.pop(key, None) is not None:
                # A name carries no metadata. Without a mark it belongs to what came with it.
                trace = trace_metadata.marked(update.version) or next(iter(traces), "")
                traces.setdefault(trace, []).append(key)
        self._swap(configs, traces)

    def _swap(
        self,
        configs: dict[keys.ObjectKey, objects.Config],
        traces: Mapping[str, list[keys.ObjectKey]],
    ) -> None:
        before = self._state
        self._state = objects.StoreState(
            configs=dict(sorted(configs.items())) if traces else before.configs,
            problems=tuple(
                objects.Problem(location=self.name, message=reason, key=_key(name))
                for _, found in sorted(self._problems.items())
                for name, reason in sorted(found.items())
            ),
            synced=not self._awaited,
        )
        if not traces and self._state != before:
            traces = {"": []}
        for trace, changed in traces.items():
            change = changes.Change(
                source=self.name, keys=tuple(sorted(changed)), traceparent=trace
            )
            for notify in tuple(self._subscribers):
                notify(change)

    def _take_statuses(
        self,
        update: client.ClientUpdate,
        read: Mapping[str, objects.Config | status_pb2.ObjectStatus],
    ) -> None:
        statuses = dict(self._statuses)
        changed = []
        for resource in update.changed:
            found = read[resource.name]
            assert isinstance(found, status_pb2.ObjectStatus)  # noqa: S101 - by its type URL
            key = status.key_of(found.object)
            statuses[key] = found.status
            changed.append(key)
        for _, name in update.removed:
            if statuses.pop(_key(name), None) is not None:
                changed.append(_key(name))
        self._statuses = dict(sorted(statuses.items()))
        change = changes.Change(source=self.name, keys=tuple(sorted(changed)))
        for notify in tuple(self._status_subscribers):
            notify(change)


def _subscribe(subscribers: list[Notify], notify: Notify) -> Callable[[], None]:
    def call(change: changes.Change) -> None:
        notify(change)

    subscribers.append(call)  # wrapped, so that one handler may subscribe twice

    def end() -> None:
        if call in subscribers:
            subscribers.remove(call)

    return end


def _key(name: str) -> keys.ObjectKey:
    """The key that a resource's name spells."""
    kind, _, rest = name.partition("/")
    namespace, _, own = rest.partition("/")
    return keys.ObjectKey(kind, namespace, own)
