# SPDX-License-Identifier: Apache-2.0
"""A gRPC application without a proxy, as a process: it reads its bootstrap once, at the start.

It takes one JSON object a line, and answers each with one:

    {"call": TARGET, "count": N, "metadata": {...}}  N calls, one after the other
    {"flow": TARGET}                                 call without end, beside everything else
    {"stop": true}                                   end that, and tell how it went
    {"serve": ADDRESS, "name": NAME}                 serve by xDS: the address must be asked for

An answer to calls is {"replies": {NAME: COUNT}, "failures": [TEXT]}.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import grpc.experimental

METHOD = "/test.Backend/Name"
NODE_DOMAIN = "cluster.local"
_DEADLINE = 45.0
_CREDENTIALS = "TEST_GRPC_CREDENTIALS"
NODE_MODULES = "PILOTHOUSE_TEST_NODE_MODULES"
"""Variable: the folder in which `npm install @grpc/grpc-js @grpc/grpc-js-xds` was run."""
PROGRAMS: Mapping[str, Sequence[str]] = {
    "python": (sys.executable, __file__),
    "javascript": ("node", str(Path(__file__).with_suffix(".cjs"))),
}


def environment_of(language: str) -> Mapping[str, str] | None:
    """What a program needs besides; None if it cannot be run here."""
    if language != "javascript":
        return {}
    folder = os.environ.get(NODE_MODULES)
    return {"NODE_PATH": f"{folder}/node_modules"} if folder else None


# In the test's process


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How calls went."""

    replies: Mapping[str, int]
    """How many each backend answered."""
    failures: tuple[str, ...] = ()


@dataclass(slots=True)
class Application:
    """The running process."""

    process: asyncio.subprocess.Process
    log: Path
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def call(
        self, target: str, count: int = 1, metadata: Mapping[str, str] | None = None
    ) -> Outcome:
        """Call a target so many times."""
        return _outcome(
            await self._say({"call": target, "count": count, "metadata": dict(metadata or {})})
        )

    async def flow(self, target: str) -> None:
        """Begin to call a target without end."""
        await self._say({"flow": target})

    async def stop(self) -> Outcome:
        """End what `flow` began."""
        return _outcome(await self._say({"stop": True}))

    async def serve(self, address: str, name: str) -> None:
        """Serve on an address as xDS says."""
        await self._say({"serve": address, "name": name})

    async def _say(self, command: Mapping[str, Any]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        async with self._turn, asyncio.timeout(_DEADLINE):
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            line = await self.process.stdout.readline()
        assert line, f"the application has ended:\n{self.log.read_text()[-3000:]}"
        return json.loads(line)


def _outcome(answer: Mapping[str, Any]) -> Outcome:
    return Outcome(replies=answer["replies"], failures=tuple(answer["failures"]))


@contextlib.asynccontextmanager
async def application(
    discovery: str,
    folder: Path,
    *,
    name: str = "client",
    namespace: str = "default",
    address: str = "127.0.0.1",
    environment: Mapping[str, str] | None = None,
    program: Sequence[str] = (sys.executable, __file__),
    provider: Mapping[str, str] | None = None,
) -> AsyncIterator[Application]:
    """An application that reads from `discovery`; it is killed after the block.

    `program` is one of `PROGRAMS`. With a `provider`, the files that gRPC's own file watcher takes
    certificates from, it leaves to xDS how it connects.
    """
    bootstrap: dict[str, Any] = {
        "xds_servers": [
            {
                "server_uri": discovery,
                "channel_creds": [{"type": "insecure"}],
                "server_features": ["xds_v3"],
            }
        ],
        "node": {
            "id": f"grpc~{address}~{name}.{namespace}~{NODE_DOMAIN}",
            "cluster": f"{name}.{namespace}",
            "locality": {},
        },
        "server_listener_resource_name_template": ("grpc/server?xds.resource.listening_address=%s"),
    }
    if provider is not None:
        bootstrap["node"]["metadata"] = {"CERTIFICATE_PROVIDER": "mesh"}
        watcher = {"plugin_name": "file_watcher", "config": {**provider, "refresh_interval": "60s"}}
        bootstrap["certificate_providers"] = {"mesh": watcher}
    log = folder / f"{name}.log"
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env={
                **os.environ,
                "GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(bootstrap),
                _CREDENTIALS: "xds" if provider is not None else "",
                **(environment or {}),
            },
        )
    try:
        yield Application(process, log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@contextlib.asynccontextmanager
async def backend(
    name: str, *, credentials: grpc.ServerCredentials | None = None
) -> AsyncIterator[int]:
    """A gRPC server that answers with its name; the value is its port on 127.0.0.1."""

    async def answer(request: bytes, context: object) -> bytes:
        del request, context
        return name.encode()

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_handlers(answer),))
    port = (
        server.add_insecure_port("127.0.0.1:0")
        if credentials is None
        else server.add_secure_port("127.0.0.1:0", credentials)
    )
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


def _handlers(answer: Any) -> grpc.GenericRpcHandler:
    _, service, method = METHOD.split("/")
    return grpc.method_handlers_generic_handler(
        service, {method: grpc.unary_unary_rpc_method_handler(answer)}
    )


# In the process


class _Calls:
    """Calls a target, and counts."""

    def __init__(self, target: str, metadata: Mapping[str, str]) -> None:
        self._call: Callable[..., Any] = _channel(target).unary_unary(METHOD)
        self._metadata = tuple(metadata.items())
        self._replies: collections.Counter[str] = collections.Counter()
        self._failures: list[str] = []
        self._over = threading.Event()

    def once(self) -> None:
        try:
            reply = self._call(b"", timeout=10, wait_for_ready=False, metadata=self._metadata)
            self._replies[reply.decode()] += 1
        except grpc.RpcError as error:
            failed: Any = error
            self._failures.append(f"{failed.code().name}: {failed.details()}")

    def until_over(self) -> None:
        while not self._over.is_set():
            self.once()

    def end(self) -> None:
        self._over.set()

    def outcome(self) -> dict[str, Any]:
        return {"replies": dict(self._replies), "failures": self._failures}


_channels: dict[str, grpc.Channel] = {}


def _channel(target: str) -> grpc.Channel:
    if target not in _channels:
        if os.environ.get(_CREDENTIALS):
            untyped: Any = grpc.experimental
            credentials = grpc.xds_channel_credentials(untyped.insecure_channel_credentials())
            _channels[target] = grpc.secure_channel(target, credentials)
        else:
            _channels[target] = grpc.insecure_channel(target)
    return _channels[target]


def _serve(address: str, name: str) -> grpc.Server:
    def answer(request: bytes, context: object) -> bytes:
        del request, context
        return name.encode()

    # grpcio has it, its stubs do not.
    make: Any = grpc.server
    server: grpc.Server = make(
        concurrent.futures.ThreadPoolExecutor(2), handlers=[_handlers(answer)], xds=True
    )
    credentials = grpc.xds_server_credentials(grpc.insecure_server_credentials())
    server.add_secure_port(address, credentials)  # -1, whatever happens
    server.start()
    return server


def _main() -> None:
    kept: list[grpc.Server] = []
    flowing: tuple[_Calls, threading.Thread] | None = None
    for line in sys.stdin:
        answer: dict[str, Any] = {}
        match json.loads(line):
            case {"call": target, "count": count, "metadata": metadata}:
                calls = _Calls(target, metadata)
                for _ in range(count):
                    calls.once()
                answer = calls.outcome()
            case {"flow": target}:
                calls = _Calls(target, {})
                flowing = (calls, threading.Thread(target=calls.until_over))
                flowing[1].start()
            case {"stop": True} if flowing is not None:
                flowing[0].end()
                flowing[1].join()
                answer = flowing[0].outcome()
            case {"serve": address, "name": name}:
                kept.append(_serve(address, name))
        print(json.dumps(answer), flush=True)  # noqa: T201  how it answers


if __name__ == "__main__":
    _main()
