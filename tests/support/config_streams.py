# SPDX-License-Identifier: Apache-2.0
"""Both ends of a config stream on real sockets: a source that a test fills, and a reader.

`Source` plays discovery for ingress and egress, or ingress and egress for discovery.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from pilothouse.adapters.rpc import (
    backoff,
    config_source,
    services,
    serving,
    streams,
    trace_metadata,
)
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.config import codec, objects, schema
from pilothouse.model import changes, keys
from pilothouse.xds import resources, types
from pilothouse.xds import streams as xds_streams

LOCAL = serving.Address("127.0.0.1", 0)
NODE_ID = "source~127.0.0.1~reader.test~cluster.local"
DELTA_PATH = services.ADS.delta_path


def request(type_url: str, *, nonce: str = "", error: str = "") -> bytes:
    """A delta request, encoded: a subscription, or the answer to a response."""
    made = discovery_pb2.DeltaDiscoveryRequest(type_url=type_url, response_nonce=nonce)
    made.node.id = NODE_ID
    if error:
        made.error_detail.message = error
    return made.SerializeToString()


def response(body: object) -> discovery_pb2.DeltaDiscoveryResponse:
    """A delta response, decoded; the end of the stream is no response."""
    assert isinstance(body, bytes), body
    return discovery_pb2.DeltaDiscoveryResponse.FromString(body)


@dataclass(slots=True, eq=False)
class Source:
    """A StreamHost of any resources, with what its readers answered."""

    sessions: list[streams.Session] = field(default_factory=list)
    log: list[xds_streams.Event] = field(default_factory=list)
    sent_sizes: list[tuple[str, int, int]] = field(default_factory=list)
    """Type, resources and removals of each response."""
    address: serving.Address = LOCAL
    _held: dict[tuple[str, str], resources.Resource] = field(default_factory=dict)
    _snapshot: resources.Snapshot | None = None

    def put(self, *configs: objects.Config, traceparent: str = "") -> None:
        """Add or replace config objects, and push."""
        self.put_raw(*(codec.encode(each) for each in configs), traceparent=traceparent)

    def put_raw(self, *bodies: codec.Encoded, traceparent: str = "") -> None:
        """Add or replace resources, be they good or bad, and push."""
        metadata = trace_metadata.encode(traceparent)
        for url, name, body in bodies:
            self._held[url, name] = resources.Resource.of(url, name, body, metadata=metadata)
        self._push()

    def remove(self, *names: str) -> None:
        """Take resources away, of whatever type, and push."""
        self._held = {key: one for key, one in self._held.items() if key[1] not in names}
        self._push()

    def nacks(self) -> list[str]:
        """What readers said when they refused."""
        return [each.message for each in self.log if isinstance(each, xds_streams.Nacked)]

    def _push(self) -> None:
        self._snapshot = resources.Snapshot.of([resources.Layer.of(self._held.values())])
        for session in self.sessions:
            session.push(self._snapshot)

    def opened(self, session: streams.Session) -> None:
        """As StreamHost says."""
        self.sessions.append(session)
        if self._snapshot is not None:
            session.push(self._snapshot)

    def events(self, session: streams.Session, events: tuple[xds_streams.Event, ...]) -> None:
        """As StreamHost says."""
        self.log.extend(events)

    def sent(self, session: streams.Session, response: xds_streams.Response) -> None:
        """As StreamHost says."""
        short = types.of(response.type_url).short
        self.sent_sizes.append((short, response.resources, response.removed))

    def closed(self, session: streams.Session) -> None:
        """As StreamHost says."""
        self.sessions.remove(session)


@contextlib.asynccontextmanager
async def serve(
    host: streams.StreamHost,
    address: serving.Address = LOCAL,
    *,
    options: serving.GrpcOptions | None = None,
) -> AsyncIterator[serving.Address]:
    """Serve a host's streams inside the block; the value is the address."""
    xds = streams.XdsServer(host)
    server = serving.GrpcServer(options=options or serving.GrpcOptions())
    xds.add_to(server)
    port = server.bind(address, setting="the test's address")
    async with server.running(grace=0.1):
        try:
            yield serving.Address(address.host, port)
        finally:
            await xds.drain()


@dataclass(slots=True, eq=False)
class Reader:
    """A ConfigStreamClient that runs, with the changes it told of."""

    client: config_source.ConfigStreamClient
    told: list[changes.Change] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The objects it holds, as KIND/NAMESPACE/NAME."""
        return [str(key) for key in self.client.current().configs]

    def get(self, name: str) -> objects.Config:
        """One object by KIND/NAMESPACE/NAME."""
        return self.client.current().configs[keys.ObjectKey(*name.split("/", 2))]


@contextlib.asynccontextmanager
async def read(
    address: serving.Address,
    *,
    name: str = "test",
    kinds: Iterable[str] = tuple(schema.KINDS),
    statuses: bool = False,
) -> AsyncIterator[Reader]:
    """Read a config source inside the block."""
    client = config_source.ConfigStreamClient(
        name,
        address,
        node_id=NODE_ID,
        kinds=tuple(kinds),
        statuses=statuses,
        delays=backoff.Backoff(initial=0.02, maximum=0.1),
    )
    reader = Reader(client)
    client.subscribe(reader.told.append)
    task = asyncio.create_task(client.run())
    try:
        yield reader
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task  # whatever ended it before is the test's business
