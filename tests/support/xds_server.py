# SPDX-License-Identifier: Apache-2.0
"""A real XdsServer that gives everybody one snapshot, and remembers what was said."""

import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable

from pilothouse.adapters.rpc import admission, serving, streams
from pilothouse.xds import resources
from pilothouse.xds import streams as xds_streams


class Host:
    """The StreamHost."""

    def __init__(self, first: resources.Snapshot = resources.Snapshot.EMPTY) -> None:
        self.snapshot = first
        self.sessions: list[streams.Session] = []
        self.refused: list[str] = []
        """The words of refusals."""
        self.missing: dict[str, int] = defaultdict(int)
        """How many names were told to be missing, by type URL."""

    def set(self, *parts: resources.Resource) -> None:
        """Give everybody these resources from now on."""
        self.give(resources.Snapshot.of((resources.Layer.of(parts),)))

    def give(self, snapshot: resources.Snapshot) -> None:
        """Give everybody this snapshot from now on."""
        self.snapshot = snapshot
        for session in self.sessions:
            session.push(snapshot)

    @property
    def in_sync(self) -> bool:
        """True when somebody is there, and all of them hold everything."""
        return bool(self.sessions) and all(one.stream.in_sync for one in self.sessions)

    def opened(self, session: streams.Session) -> None:
        self.sessions.append(session)
        session.push(self.snapshot)

    def events(self, session: streams.Session, events: tuple[xds_streams.Event, ...]) -> None:
        del session
        self.refused += [one.message for one in events if isinstance(one, xds_streams.Nacked)]

    def sent(self, session: streams.Session, response: xds_streams.Response) -> None:
        del session
        self.missing[response.type_url] += response.missing

    def closed(self, session: streams.Session) -> None:
        self.sessions.remove(session)


@contextlib.asynccontextmanager
async def serving_xds(
    host: streams.StreamHost,
    address: str = "127.0.0.1:0",
    *,
    add: Callable[[serving.GrpcServer], None] | None = None,
    admitting: admission.Admission | None = None,
    options: serving.GrpcOptions | None = None,
) -> AsyncIterator[int]:
    """Serve every discovery service inside the block; the value is the port.

    `add` adds more services to the same server.
    """
    server = serving.GrpcServer(options=options or serving.GrpcOptions())
    xds = streams.XdsServer(host, per_type=True, admitting=admitting)
    xds.add_to(server)
    if add is not None:
        add(server)
    port = server.bind(serving.Address.parse(address), setting="test")
    async with server.running(grace=0.5):
        try:
            yield port
        finally:
            await xds.drain()
