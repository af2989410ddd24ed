# SPDX-License-Identifier: Apache-2.0
"""A folder that is read once and watched once, for as many views as there are.

Looking (walk, read, parse, build) happens on one thread of the folder's own; the event loop only
swaps the finished states and tells the subscribers. An event from the watch means "look again", and
nothing more. Write a file beside its place and rename it over the old one to change it as a whole.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any, NoReturn, TypeVar

import structlog

from pilothouse.adapters.files import claims, content, tree, views, watch
from pilothouse.config import objects
from pilothouse.model import changes, keys

_LOG = structlog.get_logger(__name__)

_UNSETTLED = 60  # milliseconds until a file that was just written is looked at again

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What one look at the folder found."""

    content: content.Content
    tree: tree.Tree
    pending: tuple[tuple[views.View[Any, Any], views.Pending], ...]
    problems: tuple[objects.Problem, ...]
    changed: tuple[keys.ObjectKey, ...]
    """What changed in the views whose states differ, sorted."""


class Folder:
    """A folder of ``*.yaml``, ``*.yml`` and ``*.json`` files, subfolders included.

    Names that begin with a dot are passed over, except where a link leads to them. Once it has been
    read, a folder that vanishes keeps what it held, a file that breaks likewise, object by object.
    Of several documents that name the same object, the first by path and place counts.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        on_change: Callable[[tuple[keys.ObjectKey, ...]], str] = lambda _: "",
        poll_interval: float = 5.0,
    ) -> None:
        """Name a folder; nothing is read before `run`.

        Args:
            path: Need not exist yet: then nothing is synced until it does.
            on_change: Called on the event loop with the changed objects, sorted, when a change has
                been read and before anybody is told of it; gives the W3C traceparent of the change,
                or an empty string.
            poll_interval: Seconds between looks when no event came; some file systems give none.
        """
        self.path = os.fspath(path)
        self._on_change = on_change
        self._poll_ms = max(1, int(poll_interval * 1000))
        self._views: list[views.View[Any, Any]] = []
        self._content = content.Content()
        self._claims = claims.Claims()
        self._problems: tuple[objects.Problem, ...] = ()
        self._synced = asyncio.Event()
        self._running = False

    def attach(self, view: views.View[Any, Any]) -> None:
        """Have a view filled from this folder; for views to call.

        Raises:
            RuntimeError: the folder is running already.
        """
        if self._running:
            raise RuntimeError(f"{self.path} is running: make its views before")
        self._views.append(view)

    @property
    def problems(self) -> tuple[objects.Problem, ...]:
        """Everything that is wrong: the folder, its files, their objects; sorted by location."""
        return self._problems

    @property
    def ignored(self) -> int:
        """How many documents are of kinds that Pilothouse does not read."""
        return sum(file.ignored for file in self._content.files.values())

    async def synced(self) -> None:
        """Return when the folder has been read whole once."""
        await self._synced.wait()

    async def run(self) -> NoReturn:
        """Read and watch, until cancelled.

        Raises:
            RuntimeError: it is running already.
        """
        if self._running:
            raise RuntimeError(f"{self.path} is running already")
        self._running = True
        stop = threading.Event()
        watcher = watch.Watcher()
        executor = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="folder")
        try:
            while True:
                look = await _call(executor, stop, functools.partial(self._look, stop))
                self._take(look)
                await _call(executor, stop, functools.partial(self._wait, watcher, stop, look))
        finally:
            # The thread has nothing to do by now, so none of this blocks.
            executor.submit(watcher.close)
            executor.shutdown(wait=True)
            self._running = False

    def _look(self, stop: threading.Event) -> _Look:
        found = tree.walk(self.path)
        now = content.refresh(self._content, found, root=self.path, stop=stop)
        prepared: list[tuple[views.View[Any, Any], views.Pending]] = []
        if now.present and not stop.is_set():
            news = self._claims.update(now.files)
            prepared = [(view, view.prepare(news)) for view in self._views]
        problems = [*now.problems, *self._claims.problems()]
        problems += [each for file in now.files.values() for each in file.problems]
        problems += [each for view in self._views for each in view.found]
        ordered = views.in_order(problems)
        complete = tuple((view, view.complete(pending, ordered)) for view, pending in prepared)
        merged = {key for _, pending in complete if pending.differs for key in pending.changed}
        return _Look(
            content=now,
            tree=found,
            pending=complete,
            problems=ordered,
            changed=tuple(sorted(merged)),
        )

    def _wait(self, watcher: watch.Watcher, stop: threading.Event, look: _Look) -> None:
        if watcher.arm(look.tree.watched):
            return  # look again: nobody was watching since
        timeout_ms = self._poll_ms if look.content.settled else min(_UNSETTLED, self._poll_ms)
        watcher.wait(stop, timeout_ms=timeout_ms, concerns=look.tree.concerns)

    def _take(self, look: _Look) -> None:
        self._report(look.problems)
        self._content, self._problems = look.content, look.problems
        changed = [(view, pending) for view, pending in look.pending if view.commit(pending)]
        if changed:
            traceparent = self._on_change(look.changed)
            for view, pending in changed:
                view.notify(
                    changes.Change(source=view.name, keys=pending.changed, traceparent=traceparent)
                )
        if look.content.present and not self._synced.is_set():
            self._synced.set()
            _LOG.info("folder read", path=self.path, files=len(look.content.files))

    def _report(self, problems: tuple[objects.Problem, ...]) -> None:
        known, now = set(self._problems), set(problems)
        for problem in problems:
            if problem not in known:
                key = str(problem.key) if problem.key else None
                _LOG.warning(
                    "problem in folder", at=problem.location, reason=problem.message, object=key
                )
        for problem in self._problems:
            if problem not in now:
                _LOG.info("problem solved", at=problem.location, reason=problem.message)


async def _call(
    executor: futures.ThreadPoolExecutor, stop: threading.Event, work: Callable[[], T]
) -> T:
    """Run work on the folder's thread; when cancelled, have it end early and wait for that."""
    future = asyncio.get_running_loop().run_in_executor(executor, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([future])
        raise
