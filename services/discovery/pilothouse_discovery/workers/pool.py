# SPDX-License-Identifier: Apache-2.0
"""The workers of one parent: started, met, told to stop, and started anew when they die.

A worker is a program of its own, started before it knows anything of gRPC, and killed by the kernel
when its parent dies. It comes to an abstract Unix socket, which leaves no file behind, and only the
process that was started is let in.
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import secrets
import socket
import struct
import sys
from collections.abc import AsyncIterator, Mapping

import structlog

from pilothouse.adapters import process
from pilothouse.adapters.rpc import serving, web
from pilothouse.xds import status
from pilothouse_discovery import connections, settings
from pilothouse_discovery.workers import links, messages, ports

_LOG = structlog.get_logger(__name__)

PAUSE = 0.2
"""Seconds before a worker that died is started anew; longer each time it did not come to serve."""
_PAUSE_MOST = 10.0
_PEER = struct.Struct("3i")  # pid, uid, gid: SO_PEERCRED in unix(7)


def of(chosen: settings.Settings, host: links.Host) -> Pool:
    """The workers that the settings ask for."""
    return Pool(
        chosen.workers,
        host=host,
        address=serving.Address.parse(chosen.grpc_address),
        hello=messages.Hello(
            version=messages.VERSION,
            grpc_address=chosen.grpc_address,
            calls=f"unix-abstract:{_abstract_name()}",
            write_timeout=chosen.write_timeout,
            shutdown_grace=chosen.shutdown_grace,
            limits=tuple(connections.of(chosen)),
        ),
        log=(chosen.log_level, chosen.log_format),
    )


def _abstract_name() -> str:
    return f"pilothouse-{os.getpid()}-{secrets.token_hex(8)}"


class Pool:
    """A number of workers."""

    def __init__(
        self,
        count: int,
        *,
        host: links.Host,
        address: serving.Address,
        hello: messages.Hello,
        log: tuple[str, str],
    ) -> None:
        """Start nothing.

        Args:
            count: How many.
            host: Whom their clients are served for.
            address: Where they listen, as ``--grpc-address`` says it.
            hello: What they are told; the address in it is filled in.
            log: Level and format of their logs.
        """
        self._count = count
        self._host = host
        self._address = address
        self._hello = hello
        self._log = log
        self._name = _abstract_name()
        self._awaited: dict[int, asyncio.Future[socket.socket]] = {}
        self._links: dict[links.Link, int] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._refused = 0
        """By workers that are gone."""
        self._ready = False
        self._stopping = False

    @property
    def calls(self) -> str:
        """Where the calls that workers pass on are to be answered, in gRPC's form."""
        return self._hello.calls

    @property
    def waiting(self) -> int:
        """Streams that wait for their turn to begin, at all workers."""
        return sum(link.queued.waiting for link in self._links)

    @property
    def refused(self) -> int:
        """Streams that were refused since the start, as too many began at once."""
        return self._refused + sum(link.queued.refused for link in self._links)

    def check(self) -> web.Check:
        """Whether all of them listen."""
        missing = self._count - sum(
            link.serving.is_set() and not link.failure for link in self._links
        )
        message = f"{missing} of {self._count} do not listen" if missing else ""
        return web.Check(name="workers", ok=not missing, message=message)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers that are linked, in the order in which they came."""
        return tuple(self._links.values())

    @property
    def clients(self) -> Mapping[int, int]:
        """How many clients each worker has, by process id."""
        return {pid: len(link.sessions) for link, pid in self._links.items()}

    def set_ready(self) -> None:
        """Everything has been read and built: tell all, also those that come."""
        self._ready = True
        for link in self._links:
            link.say(messages.Ready())

    async def ask(self, topic: str, body: bytes = b"") -> list[bytes]:
        """What each worker answers; those that go meanwhile are left out."""
        answers = await asyncio.gather(*(link.ask(topic, body) for link in self._links))
        return [answer for answer in answers if answer]

    async def refresh(self) -> None:
        """Have all streams know how each of their types stands."""
        await asyncio.gather(*(_refresh(link) for link in self._links))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Have the workers inside the block, where all of them listen at first.

        Raises:
            serving.StartError: the port is taken, or a worker cannot listen.
        """
        with (
            ports.reserved(self._address, setting="--grpc-address") as address,
            socket.socket(socket.AF_UNIX) as listening,
        ):
            listening.setblocking(False)  # noqa: FBT003
            listening.bind(f"\0{self._name}")
            listening.listen(self._count)
            self._hello = self._hello._replace(grpc_address=str(address))
            accepting = asyncio.create_task(self._accept(listening), name="workers come")
            came = asyncio.Semaphore(0)
            self._keepers = [
                asyncio.create_task(self._keep(came), name=f"worker {n}")
                for n in range(self._count)
            ]
            try:
                await self._all_serve(came)
                yield
            finally:
                await self._stop()
                accepting.cancel()
                await asyncio.wait((accepting,))

    async def watch(self) -> None:
        """Raise what should not have happened to whoever looks after a worker."""
        done, _ = await asyncio.wait(self._keepers, return_when=asyncio.FIRST_COMPLETED)
        for keeper in done:
            keeper.result()

    async def _all_serve(self, came: asyncio.Semaphore) -> None:
        async def all_came() -> None:
            for _ in range(self._count):
                await came.acquire()

        waiting = asyncio.create_task(all_came(), name="first workers")
        try:
            done, _ = await asyncio.wait(
                (waiting, *self._keepers), return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
        finally:
            waiting.cancel()
            await asyncio.wait((waiting,))

    async def _stop(self) -> None:
        self._stopping = True
        for link in self._links:
            link.say(messages.Stop())
        _, late = await asyncio.wait(self._keepers, timeout=self._hello.shutdown_grace + 5.0)
        for keeper in late:
            keeper.cancel()  # which kills its worker
        if late:
            await asyncio.wait(late)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            caller, _ = await loop.sock_accept(listening)
            pid, _, _ = _PEER.unpack(
                caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            )
            awaited = self._awaited.pop(pid, None)
            if awaited is None or awaited.done():
                _LOG.warning("somebody came who was not started", pid=pid)
                caller.close()
            else:
                awaited.set_result(caller)

    async def _keep(self, came: asyncio.Semaphore) -> None:
        """Have one worker, and another one when that dies."""
        pause, first = PAUSE, True
        while not self._stopping:
            link = await self._run_one(came if first else None)
            served = link is not None and link.serving.is_set() and not link.failure
            if first and not served and not self._stopping:
                reason = link.failure if link is not None else "it ended at once"
                raise serving.StartError(f"a worker cannot serve: {reason}")
            if not self._stopping:
                first = False
                pause = PAUSE if served else min(2 * pause, _PAUSE_MOST)
                await asyncio.sleep(pause)

    async def _run_one(self, came: asyncio.Semaphore | None) -> links.Link | None:
        """Have one worker until it ends; its link, if there was one."""
        level, style = self._log
        worker = process.Supervisor(
            (
                *(sys.executable, "-m", "pilothouse_discovery.workers", self._name),
                *("--log-level", level, "--log-format", style),
            )
        )
        await worker.start()
        link: links.Link | None = None
        try:
            link = await self._meet(worker)
            if link is not None:
                await self._talk(link, worker.pid, came)
        except links.LinkError as error:
            _LOG.error("worker is not understood", pid=worker.pid, reason=str(error))
        finally:
            # One that was told to stop needs no signal, one that lost its link ends by itself.
            grace = self._hello.shutdown_grace + 1.0
            code = await _ended(worker, within=grace)
            if not self._stopping:
                hint = process.exit_hint(code)
                _LOG.warning("worker has ended", pid=worker.pid, code=code, hint=hint)
        return link

    async def _meet(self, worker: process.Supervisor) -> links.Link | None:
        """The link to a worker that was just started; None when it ended before it came."""
        awaited: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        self._awaited[worker.pid] = awaited
        ended = asyncio.create_task(worker.wait(), name="worker start")
        try:
            await asyncio.wait((awaited, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._awaited.pop(worker.pid, None)
            ended.cancel()
            await asyncio.wait((ended,))
        if not awaited.done():
            return None
        reader, writer = await asyncio.open_unix_connection(sock=awaited.result())
        return links.Link(reader, writer, self._host)

    async def _talk(self, link: links.Link, pid: int, came: asyncio.Semaphore | None) -> None:
        self._links[link] = pid
        link.say(self._hello)
        if self._ready:
            link.say(messages.Ready())
        if self._stopping:
            link.say(messages.Stop())
        announcing = asyncio.create_task(_announce(link, pid, came), name="worker serves")
        try:
            await link.run()
        finally:
            del self._links[link]
            self._refused += link.queued.refused
            announcing.cancel()
            await asyncio.wait((announcing,))


async def _announce(link: links.Link, pid: int, came: asyncio.Semaphore | None) -> None:
    await link.serving.wait()
    if link.failure:
        _LOG.error("worker cannot serve", pid=pid, reason=link.failure)
        link.say(messages.Stop())
        return
    _LOG.info("worker serves", pid=pid)
    if came is not None:
        came.release()


async def _ended(worker: process.Supervisor, *, within: float) -> int:
    """Wait for a worker's end, and see to it: it has lost its parent or was told to stop."""
    try:
        async with asyncio.timeout(within):
            return await worker.wait()
    except TimeoutError:
        return await worker.stop(1.0)
    except asyncio.CancelledError:
        await worker.stop(0.0)
        raise


async def _refresh(link: links.Link) -> None:
    answer = await link.ask("types")
    if not answer:
        return
    for number, told in marshal.loads(answer):  # noqa: S302  plain values, from our own child
        session = link.sessions.get(number)
        if session is not None:
            session.stream.told = tuple(status.TypeStatus(**fields) for fields in told)
