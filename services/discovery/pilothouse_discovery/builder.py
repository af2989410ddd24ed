# SPDX-License-Identifier: Apache-2.0
"""From what the sources hold to what each proxy is given. Knows no loop, no stream and no clock.

Everything that plans or translates happens in here, one call at a time, and on whichever thread the
calls are made; what comes out never changes. So the loop of the streams hands over a `Sources` and
proxies, and gets a `Build` and answers back, whoever does the work meanwhile.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Collection, Iterable

import structlog

from pilothouse.config import admission
from pilothouse.envoy import translate
from pilothouse.model import proxy as proxies
from pilothouse.routing import plan, planner
from pilothouse.xds import resources
from pilothouse_discovery import views
from pilothouse_discovery import world as worlds

_LOG = structlog.get_logger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What follows from the sources for everybody."""

    world: worlds.World
    conditions: worlds.Conditions
    """From admission and from routing."""
    authored: resources.Layer
    """The authored objects in force, for config sources; the same object as before when they are
    the same."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A proxy that wants to know what it shall hold."""

    proxy: proxies.Proxy
    served: bool
    """True when it holds something already."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A proxy cannot be told anything, because of a mistake of ours that was logged."""


Answer = resources.Snapshot | plan.NotReady | Failed


class Builder:
    """Builds one state of the world after another; for one thread at a time."""

    def __init__(self, *, domain: str, authored: Collection[str]) -> None:
        """Begin with nothing.

        Args:
            domain: DNS domain of the mesh.
            authored: Names of the sources whose objects config sources are shown.
        """
        self._domain = domain
        self._authored_sources = frozenset(authored)
        self._planner = planner.Planner()
        self._translator = translate.Translator()
        self._accepted = admission.AcceptedSet()
        self._authored = views.AuthoredView()
        self._mesh: planner.Mesh | None = None
        self._sources: worlds.Sources | None = None
        self._finished: weakref.WeakSet[resources.Layer] = weakref.WeakSet()
        self._translated: dict[int, tuple[plan.ProxyPlan, resources.Snapshot]] = {}
        """The plans of this build that some proxy has, and their snapshots."""

    def build(self, sources: worlds.Sources, *, traceparent: str) -> Build:
        """Take what the sources hold now; new and changed authored objects carry the trace."""
        built = worlds.assemble(sources, previous=self._accepted, domain=self._domain)
        self._sources = sources
        self._accepted = built.accepted
        self._translator.begin_generation()
        self._translated = {}
        self._mesh = self._planner.update(built.state)
        self._authored.update(
            (
                config
                for config in built.state.configs.values()
                if config.source in self._authored_sources
            ),
            traceparent=traceparent,
        )
        conditions = dict(built.conditions)
        for key, found in self._mesh.conditions.items():
            conditions[key] = (*conditions.get(key, ()), *found)
        return Build(world=built, conditions=conditions, authored=self._authored.layer)

    def answers(self, asked: Iterable[Asked]) -> tuple[Answer, ...]:
        """What each of these proxies shall hold by the newest build, in their order."""
        return tuple(map(self._answer, asked))

    def _answer(self, asked: Asked) -> Answer:
        if self._mesh is None or self._sources is None:
            return plan.NotReady(waiting_for=("the first build",))
        try:
            planned = self._mesh.plan(asked.proxy, served=asked.served)
            if isinstance(planned, plan.NotReady):
                return planned
            return self._snapshot(planned, self._sources)
        except Exception:  # noqa: BLE001  told, and not passed on
            # A mistake of ours costs this proxy, not the others, and is told.
            _LOG.exception("proxy not planned", node=str(asked.proxy.id))
            return Failed()

    def _snapshot(self, planned: plan.ProxyPlan, sources: worlds.Sources) -> resources.Snapshot:
        known = self._translated.get(id(planned))
        if known is None:
            snapshot = self._translator.snapshot(planned, sources.secrets)
            self._finish(snapshot)
            # The plan is kept with it, so that nothing else can get its identity.
            known = self._translated[id(planned)] = (planned, snapshot)
        return known[1]

    def _finish(self, snapshot: resources.Snapshot) -> None:
        """Work out here what its first stream would ask for on the loop: versions and frames."""
        for type_url in snapshot.types:
            snapshot.version(type_url)
        for layer in snapshot.layers:
            if layer not in self._finished:
                self._finished.add(layer)
                for resource in layer:
                    _ = resource.delta_frame
