# SPDX-License-Identifier: Apache-2.0
"""What `grpc.aio` itself costs: it serves the same bytes to whoever asks, and knows nothing else.

It parses no acknowledgement, keeps no subscription and takes no care of slow clients, so it is no
control plane but the floor below any that is written on `grpc.aio`.
"""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import sys
from collections.abc import Sequence

import grpc
import grpc.aio
import uvloop

from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import types

_SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # All clients come at once, and are not to be turned away: as Pilothouse has it.
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 100_000),
)
_TYPES = (types.CLUSTER.type_url, types.ENDPOINT.type_url)
Context = grpc.aio.ServicerContext[bytes, bytes]


class Bare:
    """Serves two types: all of each to who asks, then each change to everybody."""

    def __init__(self, everything: discovery_pb2.DeltaDiscoveryResponse) -> None:
        self._whole = {
            url: _response([one for one in everything.resources if one.resource.type_url == url])
            for url in _TYPES
        }
        self._streams: dict[Context, asyncio.Task[None]] = {}
        """Each with its newest write: a stream takes one at a time."""

    async def serve(self, _requests: object, context: Context) -> None:
        """One stream."""
        *others, last = _TYPES
        for url in others:
            await context.read()
            await context.write(self._whole[url])
            await context.read()
        await context.read()
        # A client has all when it has read this, and a change may come before its answer does.
        self._streams[context] = asyncio.create_task(_write(context, self._whole[last], None))
        try:
            while isinstance(await context.read(), bytes):
                pass
        finally:
            del self._streams[context]

    def change(self, path: pathlib.Path) -> None:
        """Write a changed resource to everybody."""
        body = _response([discovery_pb2.Resource.FromString(path.read_bytes())])
        for context, before in self._streams.items():
            self._streams[context] = asyncio.create_task(_write(context, body, before))


async def _write(context: Context, body: bytes, before: asyncio.Task[None] | None) -> None:
    if before is not None:
        await before
    await context.write(body)


def _response(resources: Sequence[discovery_pb2.Resource]) -> bytes:
    return discovery_pb2.DeltaDiscoveryResponse(
        system_version_info="0123456789abcdef",
        type_url=resources[0].resource.type_url,
        nonce="0",
        resources=resources,
    ).SerializeToString()


async def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-address", required=True)
    parser.add_argument("-resources", type=pathlib.Path, required=True)
    chosen = parser.parse_args()
    raw = chosen.resources.read_bytes()
    bare = Bare(discovery_pb2.DeltaDiscoveryResponse.FromString(raw))
    server = grpc.aio.server(options=_OPTIONS)
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(bare.serve)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE, {"DeltaAggregatedResources": handler}),)
    )
    server.add_insecure_port(chosen.address)
    await server.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    while line := await lines.readline():
        bare.change(pathlib.Path(line.decode().strip()))
    await server.stop(0)


if __name__ == "__main__":
    uvloop.run(main())
