# SPDX-License-Identifier: Apache-2.0
"""A server that has everything finished before anybody asks: what is left is the client's part."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable

from pilothouse.adapters.rpc import serving, streams
from pilothouse.config import codec, documents
from pilothouse.envoy import translate
from pilothouse.kubernetes import services as kubernetes
from pilothouse.model import proxy
from pilothouse.routing import plan, planner, state
from pilothouse.xds import resources
from pilothouse.xds import streams as xds_streams


class Finished:
    """One snapshot after another, made beforehand, for one proxy."""

    def __init__(self, whom: proxy.Proxy) -> None:
        """Begin with none."""
        self._proxy = whom
        self._planner = planner.Planner()
        self._translator = translate.Translator()
        self._made: list[resources.Snapshot] = []
        self._sessions: list[streams.Session] = []

    def make(self, texts: Iterable[str]) -> None:
        """Make what the proxy holds with these manifests, to be given after all before it."""
        found, _ = documents.load("---\n".join(texts), location="bench")
        known, _ = kubernetes.registry_state(found)
        configs = (
            codec.from_manifest(one, source="bench", generation=1)[0]
            for one in found
            if codec.is_ours(one)
        )
        mesh = self._planner.update(
            state.MeshState(
                services=known.services,
                endpoints=known.endpoints,
                workloads=known.workloads,
                configs=dict(sorted((one.key, one) for one in configs if one is not None)),
                unsynced=frozenset(),
                domain="cluster.local",
            )
        )
        planned = mesh.plan(self._proxy)
        assert isinstance(planned, plan.ProxyPlan)
        snapshot = self._translator.snapshot(planned, {})
        for layer in snapshot.layers:
            for resource in layer:
                _ = resource.delta_frame
        self._made.append(snapshot)

    def give_next(self) -> None:
        """Give everybody the next snapshot."""
        del self._made[0]
        for session in self._sessions:
            session.push(self._made[0])

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Serve the first snapshot; the value is HOST:PORT."""
        server = serving.GrpcServer()
        xds = streams.XdsServer(self)
        xds.add_to(server)
        port = server.bind(serving.Address.parse("127.0.0.1:0"), setting="bench")
        async with server.running(grace=0.5):
            try:
                yield f"127.0.0.1:{port}"
            finally:
                await xds.drain()

    def opened(self, session: streams.Session) -> None:
        """Serve who has come."""
        self._sessions.append(session)
        session.push(self._made[0])

    def events(self, session: streams.Session, events: tuple[xds_streams.Event, ...]) -> None:
        """Acknowledgements are the protocol's."""

    def sent(self, session: streams.Session, response: xds_streams.Response) -> None:
        """Nothing is counted."""

    def closed(self, session: streams.Session) -> None:
        """Forget who has gone."""
        self._sessions.remove(session)
