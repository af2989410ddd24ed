# SPDX-License-Identifier: Apache-2.0
"""A target of the xDS conformance harness: a server whose content is set from outside.

The harness (https://github.com/ii/xds-test-harness) tells its target over a service of five calls
what each node shall hold, and under which version. Its messages are made here at run time, with the
numbers and types that the harness uses, so that it can drive this server as it drives others.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import grpc.aio
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message, message_factory

from pilothouse.adapters.rpc import serving, streams
from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.config.listener.v3 import listener_pb2
from pilothouse.api.envoy.config.route.v3 import route_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,
)
from pilothouse.envoy import wire
from pilothouse.xds import resources
from pilothouse.xds import streams as xds_streams
from tests.support import xds_calls

SERVICE: Final = "adapter.Adapter"
CALLS: Final = ("SetState", "ClearState", "UpdateResource", "AddResource", "RemoveResource")
_Field = descriptor_pb2.FieldDescriptorProto


def _messages() -> dict[str, type[message.Message]]:
    file = descriptor_pb2.FileDescriptorProto(
        name="adapter.proto",
        package="adapter",
        syntax="proto3",
        dependency=["google/protobuf/any.proto"],
    )
    texts = {
        "State": ("node", "version"),
        "Change": ("node", "typeUrl", "resourceName", "version"),
    }
    for name, fields in texts.items():
        made = file.message_type.add(name=name)
        for number, each in enumerate(fields, 1):
            made.field.add(
                name=each, number=number, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL
            )
    file.message_type[0].field.add(
        name="resources",
        number=3,
        type=_Field.TYPE_MESSAGE,
        type_name=".google.protobuf.Any",
        label=_Field.LABEL_REPEATED,
    )
    file.message_type.add(name="Done").field.add(
        name="success", number=1, type=_Field.TYPE_BOOL, label=_Field.LABEL_OPTIONAL
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"adapter.{name}"))
        for name in ("State", "Change", "Done")
    }


_MESSAGES: Final = _messages()
REQUESTS: Final[Mapping[str, type[message.Message]]] = {
    call: _MESSAGES["State" if call.endswith("State") else "Change"] for call in CALLS
}


def _body(type_url: str, name: str) -> bytes:
    """A resource that a real client could take."""
    made = xds_calls.named(type_url, name)
    match made:
        case cluster_pb2.Cluster():
            made.type = cluster_pb2.Cluster.EDS
            made.eds_cluster_config.eds_config.CopyFrom(wire.ADS)
        case listener_pb2.Listener():
            made.address.CopyFrom(wire.address("127.0.0.1", 10000))
            manager = http_connection_manager_pb2.HttpConnectionManager(stat_prefix=name)
            manager.rds.config_source.CopyFrom(wire.ADS)
            manager.rds.route_config_name = name
            made.filter_chains.add().filters.add(
                name="envoy.filters.network.http_connection_manager",
                typed_config=wire.packed(manager),
            )
        case route_pb2.RouteConfiguration():
            made.virtual_hosts.add(name=name, domains=["*"])
    return wire.encode(made)


class _Versioned(resources.Snapshot):
    """A snapshot whose types have the versions that they were given."""

    def __init__(self, layers: tuple[resources.Layer, ...]) -> None:
        super().__init__(layers)
        self.given: Mapping[str, str] = {}

    def version(self, type_url: str) -> str:
        return self.given.get(type_url) or super().version(type_url)


@dataclasses.dataclass(slots=True)
class _Kind:
    """What a node holds of one type."""

    version: str
    names: dict[str, str] = dataclasses.field(default_factory=dict)
    """Name to the version it was given."""


class Target:
    """Both sides of the target: what the adapter sets, and the StreamHost that serves it."""

    def __init__(self) -> None:
        self._state: dict[str, dict[str, _Kind]] = {}
        self._sessions: list[streams.Session] = []
        self._requests = 0
        self._news = asyncio.Event()
        self.refused: list[str] = []

    async def heard(self, count: int) -> None:
        """Return when so many requests have been taken in."""
        while self._requests < count:
            self._news.clear()
            await self._news.wait()

    # The five calls

    def set_state(self, node: str, version: str, held: Iterable[Any]) -> None:
        """Let a node hold these resources, of which only the name is read."""
        kinds: dict[str, _Kind] = {}
        for each in held:
            names = kinds.setdefault(each.type_url, _Kind(version)).names
            names[xds_calls.name_of(each.type_url, each.value)] = version
        self._state[node] = kinds
        self._push()

    def clear_state(self, node: str) -> None:
        """Let a node hold nothing."""
        self._state.pop(node, None)
        self._push()

    def put(self, node: str, type_url: str, name: str, version: str) -> None:
        """Add or update a resource; the type gets the version too."""
        kind = self._state.setdefault(node, {}).setdefault(type_url, _Kind(version))
        kind.version = kind.names[name] = version
        self._push()

    def remove(self, node: str, type_url: str, name: str, version: str) -> None:
        """Remove a resource; the type gets the version, if one is given."""
        kind = self._state[node][type_url]
        del kind.names[name]
        kind.version = version or f"{kind.version}-without-{name}"
        self._push()

    # StreamHost

    def opened(self, session: streams.Session) -> None:
        self._sessions.append(session)
        session.push(self._snapshot(session.node.id))

    def events(self, session: streams.Session, events: tuple[xds_streams.Event, ...]) -> None:
        del session
        self.refused += [one.message for one in events if isinstance(one, xds_streams.Nacked)]
        self._requests += 1
        self._news.set()

    def sent(self, session: streams.Session, response: xds_streams.Response) -> None:
        del session, response

    def closed(self, session: streams.Session) -> None:
        self._sessions.remove(session)

    def _push(self) -> None:
        for session in self._sessions:
            session.push(self._snapshot(session.node.id))

    def _snapshot(self, node: str) -> resources.Snapshot:
        kinds = self._state.get(node, {})
        layer = resources.Layer.of(
            resources.Resource.of(url, name, _body(url, name), version=version)
            for url, kind in kinds.items()
            for name, version in kind.names.items()
        )
        snapshot = _Versioned.of((layer,))
        assert isinstance(snapshot, _Versioned)
        snapshot.given = {url: kind.version for url, kind in kinds.items()}
        return snapshot

    def add_to(self, server: serving.GrpcServer) -> None:
        """Serve the five calls."""
        handlers = {
            call: grpc.unary_unary_rpc_method_handler(
                self._handler(call),
                request_deserializer=REQUESTS[call].FromString,
                response_serializer=_MESSAGES["Done"].SerializeToString,
            )
            for call in CALLS
        }
        generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
        server.server.add_generic_rpc_handlers((generic,))

    def _handler(self, call: str) -> Callable[[Any, Any], Any]:
        async def handle(request: Any, context: object) -> message.Message:
            del context
            match call:
                case "SetState":
                    self.set_state(request.node, request.version, request.resources)
                case "ClearState":
                    self.clear_state(request.node)
                case "RemoveResource":
                    self.remove(
                        request.node, request.typeUrl, request.resourceName, request.version
                    )
                case _:
                    self.put(request.node, request.typeUrl, request.resourceName, request.version)
            return _MESSAGES["Done"](success=True)

        return handle


class Adapter:
    """The client's side of the five calls, for one node."""

    def __init__(self, channel: grpc.aio.Channel, node: str) -> None:
        self._node = node
        self._calls: dict[str, Callable[[Any], Any]] = {
            call: channel.unary_unary(
                f"/{SERVICE}/{call}",
                request_serializer=REQUESTS[call].SerializeToString,
                response_deserializer=_MESSAGES["Done"].FromString,
            )
            for call in CALLS
        }

    async def set_state(self, version: str, held: Mapping[str, Iterable[str]]) -> None:
        """Set names by type URL, all at one version."""
        bare = [
            {"type_url": url, "value": wire.encode(xds_calls.named(url, name))}
            for url, names in held.items()
            for name in names
        ]
        await self._call("SetState", version=version, resources=bare)

    async def clear(self) -> None:
        await self._call("ClearState")

    async def update(self, type_url: str, name: str, version: str) -> None:
        await self._change("UpdateResource", type_url, name, version)

    async def add(self, type_url: str, name: str, version: str) -> None:
        await self._change("AddResource", type_url, name, version)

    async def remove(self, type_url: str, name: str, version: str = "") -> None:
        await self._change("RemoveResource", type_url, name, version)

    async def _change(self, call: str, type_url: str, name: str, version: str) -> None:
        await self._call(call, typeUrl=type_url, resourceName=name, version=version)

    async def _call(self, call: str, **fields: Any) -> None:
        done = await self._calls[call](REQUESTS[call](node=self._node, **fields))
        assert done.success
