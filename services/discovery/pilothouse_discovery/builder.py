# SPDX-License-Identifier: Apache-2.0
"""From what the sources hold to what each proxy is given. Knows no loop, no stream and no clock.

Everything that plans or translates happens in here, one call at a time, and on whichever thread the
calls are made; what comes out never changes. So the loop of the streams hands over a `Sources` and
proxies, and gets a `Build` and answers back, whoever does the work meanwhile.

Before a change of objects comes into force, the gate looks at what every proxy would be given. An
object that fails it is held as it was, and the rest is built without.
"""

from __future__ import annotations

import copy
import dataclasses
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog

from pilothouse.config import accepted as stores
from pilothouse.config import admission, objects
from pilothouse.envoy import translate
from pilothouse.envoy.gate import gate, sizes
from pilothouse.model import keys
from pilothouse.model import proxy as proxies
from pilothouse.routing import kinship, plan, planner, state
from pilothouse.routing import memo as memory
from pilothouse.xds import resources
from pilothouse_discovery import gatekeeping, records, views
from pilothouse_discovery import world as worlds

_LOG = structlog.get_logger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What follows from the sources for everybody."""

    world: worlds.World
    authored: resources.Layer
    """The authored objects in force, for config sources; the same object as before when they are
    the same."""
    faults: gatekeeping.Faults
    """What the gate found and no object can be held for; it is left out of what is published."""
    large: int = 0
    """How many resources are so large that Envoys stand still while they read them."""
    moved: frozenset[str] | None = None
    """The addresses whose proxies may be of another kind than in the build before; None if any may
    be, or may have to know of other objects."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A proxy that wants to know what it shall hold."""

    proxy: proxies.Proxy
    served: bool
    """True when it holds something already."""
    held: records.Held = dataclasses.field(default_factory=dict)
    """Objects that it is given in another content than the others."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A proxy cannot be told anything, because of a mistake of ours that was logged."""


Answer = resources.Snapshot | plan.NotReady | Failed


class Told(NamedTuple):
    """What a proxy shall hold, and as what it was planned."""

    answer: Answer
    kind: kinship.Kind | None = None
    """All of one kind, with nothing held for them, have the same answer; None for others."""


_Snapshots = memory.Living[plan.ProxyPlan, resources.Snapshot]
_Variant = frozenset[tuple[keys.ObjectKey, objects.Config | None]]


class Builder:
    """Builds one state of the world after another; for one thread at a time."""

    def __init__(
        self,
        *,
        domain: str,
        authored: Collection[str],
        store: stores.AcceptedStore,
        alarm: Callable[[], None],
    ) -> None:
        """Begin with nothing.

        Args:
            domain: DNS domain of the mesh.
            authored: Names of the sources whose objects config sources are shown.
            store: Keeps what is in force.
            alarm: Called, on the thread of `answers`, when somebody came for whom something is
                wrong that was not seen before; another build may find out whom to blame.
        """
        self._domain = domain
        self._authored_sources = frozenset(authored)
        self._store = store
        self._alarm = alarm
        self._gate = gate.Gate()
        self._planner = planner.Planner()
        self._translator = translate.Translator()
        self._authored = views.AuthoredView()
        self._mesh: planner.Mesh | None = None
        self._sources: worlds.Sources | None = None
        self._state: state.MeshState | None = None
        self._finished: weakref.WeakSet[resources.Layer] = weakref.WeakSet()
        self._large: weakref.WeakSet[resources.Resource] = weakref.WeakSet()
        self._translated: _Snapshots = memory.Living()
        """The plans of this build that some proxy has, and their snapshots."""
        self._made: _Snapshots = memory.Living()
        """The same, before the gate has left anything out."""
        self._fresh = 0
        """Plans that were translated."""
        self._variants: dict[_Variant, planner.Mesh] = {}
        """The meshes of this build for proxies that have something held."""
        self._faults: gatekeeping.Faults = frozenset()
        self._alarmed = False
        self._told_of: tuple[planner.Mesh, worlds.Sources] | None = None
        """What the last build was made of."""

    def build(
        self,
        sources: worlds.Sources,
        *,
        traceparent: str,
        asked: Sequence[Asked] = (),
        refusals: Iterable[admission.Refusal] = (),
        proven: Collection[keys.ObjectKey] = (),
    ) -> Build:
        """Take what the sources hold now.

        Args:
            sources: What they hold.
            traceparent: The trace that new and changed authored objects carry.
            asked: The proxies that the gate is to look for.
            refusals: What proxies refused since the last build.
            proven: Objects that some proxy runs as they have been in force.
        """
        again = self._sources is not None and self._sources.objects != sources.objects
        self._sources = sources
        self._translator.begin_generation()
        self._translated, self._made = memory.Living(), memory.Living()
        built, mesh = self._admitted(sources, asked, list(refusals), proven, again=again)
        self._authored.update(
            (
                config
                for config in built.state.configs.values()
                if config.source in self._authored_sources
            ),
            traceparent=traceparent,
        )
        before, self._told_of = self._told_of, (mesh, sources)
        return Build(
            world=built,
            authored=self._authored.layer,
            faults=self._faults,
            large=len(self._large),
            moved=None if before is None else _moved(*before, mesh, sources),
        )

    def conditions(self, built: Build) -> worlds.Conditions:
        """What people are told of objects by the newest build: from admission and from routing.

        Apart from it, because no proxy waits for that.
        """
        conditions = dict(built.world.conditions)
        if self._mesh is not None:
            for key, found in self._mesh.conditions.items():
                conditions[key] = (*conditions.get(key, ()), *found)
        return conditions

    def _admitted(
        self,
        sources: worlds.Sources,
        asked: Sequence[Asked],
        refusals: list[admission.Refusal],
        proven: Collection[keys.ObjectKey],
        *,
        again: bool,
    ) -> tuple[worlds.World, planner.Mesh]:
        """The state that passes the gate and that the store keeps, and its mesh.

        With ``again``, what the gate refused earlier has another chance.
        """
        kept = self._store.current()
        while True:
            previous = _reconsidered(kept) if again else kept
            built = worlds.assemble(
                sources, previous=previous, domain=self._domain, refusals=refusals, proven=proven
            )
            mesh = self._enter(built.state)
            blamed = self._blamed(built, previous, asked)
            if blamed:
                refusals += blamed
                continue
            # If somebody else decided meanwhile, it is decided from that.
            kept = self._store.keep(built.accepted, instead_of=kept)
            if kept == built.accepted:
                return built, mesh

    def _enter(self, entered: state.MeshState) -> planner.Mesh:
        """Make a state the one that answers are about."""
        self._state, self._variants = entered, {}
        self._mesh = self._planner.update(entered)
        return self._mesh

    def _blamed(
        self, built: worlds.World, previous: admission.AcceptedSet, asked: Sequence[Asked]
    ) -> tuple[admission.Refusal, ...]:
        """The objects that must not come into force as they are."""
        now = built.accepted.configs
        if now == previous.configs and not self._alarmed:
            return ()  # nothing that could be held is new
        faulty = self._look(asked, {})
        concerned = tuple(asked[number] for number in faulty)
        blamed = gatekeeping.blame(
            _union(faulty),
            before=previous.configs,
            now=now,
            attempt=lambda held: _union(
                self._look(concerned, {key: _instead(now[key], previous) for key in held})
            ),
        )
        if not blamed:
            self._faults, self._alarmed = _union(faulty), False
            if faulty:
                _LOG.error("what is wrong is left out", faults=sorted(map(str, self._faults)))
        return blamed

    def _look(self, asked: Sequence[Asked], held: records.Held) -> Mapping[int, gatekeeping.Faults]:
        """What is wrong with what these proxies would be given, by their place; each plan once."""
        found: dict[int, gatekeeping.Faults] = {}
        seen: dict[int, plan.ProxyPlan] = {}
        for number, one in enumerate(asked):
            try:
                overlaid = dataclasses.replace(one, held={**one.held, **held}) if held else one
                planned = self._planned(overlaid)
                if isinstance(planned, plan.ProxyPlan) and id(planned) not in seen:
                    seen[id(planned)] = planned
                    faults = self._faults_of(planned, grpc=_is_grpc(one))
                    if faults:
                        found[number] = faults
            except Exception:  # noqa: BLE001  told, and not passed on
                _LOG.exception("proxy not looked at", node=str(one.proxy.id))
        return found

    def _faults_of(self, planned: plan.ProxyPlan, *, grpc: bool) -> gatekeeping.Faults:
        if self._sources is None:
            return frozenset()
        made = self._raw(planned, self._sources)
        return frozenset(self._gate.report(made, grpc=grpc).all)

    def _raw(self, planned: plan.ProxyPlan, sources: worlds.Sources) -> resources.Snapshot:
        """All that follows from a plan, right or wrong."""
        known = self._made.get(planned)
        if known is None:
            self._fresh += 1
            if self._fresh % planner.FORGOTTEN == 0:
                self._translator.begin_generation()
            made = self._translator.snapshot(planned, sources.secrets)
            known = self._made.put(planned, made)
        return known

    def answers(self, asked: Iterable[Asked]) -> tuple[Told, ...]:
        """What each of these proxies shall hold by the newest build, in their order."""
        return tuple(map(self._answer, asked))

    def _answer(self, asked: Asked) -> Told:
        if self._sources is None or self._mesh is None:
            return Told(plan.NotReady(waiting_for=("the first build",)))
        try:
            planned = self._planned(asked)
            if planned is None:
                return Told(Failed())
            if isinstance(planned, plan.NotReady):
                return Told(planned)
            snapshot = self._snapshot(planned, self._sources, grpc=_is_grpc(asked))
            return Told(snapshot, None if asked.held else self._mesh.kind(asked.proxy))
        except Exception:  # noqa: BLE001  told, and not passed on
            # A mistake of ours costs this proxy, not the others, and is told.
            _LOG.exception("proxy not planned", node=str(asked.proxy.id))
            return Told(Failed())

    def _planned(self, asked: Asked) -> plan.ProxyPlan | plan.NotReady | None:
        mesh = self._variant(asked.held) if asked.held else self._mesh
        return None if mesh is None else mesh.plan(asked.proxy, served=asked.served)

    def _variant(self, held: records.Held) -> planner.Mesh | None:
        """The mesh as it is for a proxy that has something held."""
        if self._state is None:
            return None
        key = frozenset(held.items())
        known = self._variants.get(key)
        if known is None:
            # A copy remembers what this planner does, and learns for itself.
            known = copy.copy(self._planner).update(worlds.overlaid(self._state, held))
            self._variants[key] = known
        return known

    def _snapshot(
        self, planned: plan.ProxyPlan, sources: worlds.Sources, *, grpc: bool
    ) -> resources.Snapshot:
        known = self._translated.get(planned)
        if known is None:
            made = self._raw(planned, sources)
            if not self._alarmed and not self._faults.issuperset(
                self._gate.report(made, grpc=grpc).all
            ):
                self._alarmed = True
                self._alarm()
            passed = self._gate.passed(made, grpc=grpc)
            self._finish(passed)
            known = self._translated.put(planned, passed)
        return known

    def _finish(self, snapshot: resources.Snapshot) -> None:
        """Work out here what its first stream would ask for on the loop: versions and frames."""
        for type_url in snapshot.types:
            snapshot.version(type_url)
        for layer in snapshot.layers:
            if layer not in self._finished:
                news = layer.beyond(self._finished)
                self._finished.add(layer)
                for resource in news:
                    _ = resource.delta_frame
                    if sizes.is_large(resource) and resource not in self._large:
                        self._large.add(resource)
                        _LOG.warning(
                            "large resource", resource=repr(resource), bytes=len(resource.body)
                        )


def _moved(
    before: planner.Mesh, served: worlds.Sources, now: planner.Mesh, sources: worlds.Sources
) -> frozenset[str] | None:
    """Where proxies may have to be looked at; None for everywhere."""
    same = now.state.configs is before.state.configs and sources.secrets == served.secrets
    return now.moved(before) if same else None


def _reconsidered(kept: admission.AcceptedSet) -> admission.AcceptedSet:
    """Without the refusals of the gate: it may have been another object that was wrong."""
    left = {
        key: refusal
        for key, refusal in kept.refusals.items()
        if refusal.reason != admission.NOT_PUBLISHABLE
    }
    return dataclasses.replace(kept, refusals=left)


def _union(faults: Mapping[int, gatekeeping.Faults]) -> gatekeeping.Faults:
    return frozenset(fault for found in faults.values() for fault in found)


def _is_grpc(asked: Asked) -> bool:
    return asked.proxy.id.role is proxies.Role.GRPC


def _instead(config: objects.Config, previous: admission.AcceptedSet) -> objects.Config | None:
    """What an object goes back to if it is refused; None if to nothing."""
    before = previous.configs.get(config.key)
    return before if before != config else previous.fallbacks.get(config.key)
