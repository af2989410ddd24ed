# SPDX-License-Identifier: Apache-2.0
"""Which step of make-before-break one stream delivers, and when it goes on to the next one.

The steps themselves are those of `transition`. Here is what holds them up: answers that are
awaited, refusals, and clusters of an earlier stream that are not up to date yet.
"""

from __future__ import annotations

import abc

from pilothouse.xds import content, resources, rests, transition, type_state, types


class Steps(abc.ABC):
    """The part of a stream that knows where it is on the way to its target."""

    def __init__(self) -> None:
        """Begin with no target."""
        self._states: dict[str, type_state.TypeState] = {}
        self._dirty: dict[str, content.Content] = {}
        """What the next response of a type must hold, for types that have something to say."""
        self._waiting: set[str] = set()
        """Types to be answered once the clusters of an earlier stream are up to date."""
        self._settled = resources.Snapshot.EMPTY
        """The newest step of which the client has acknowledged every type that follows steps."""
        self._target: resources.Snapshot | None = None
        self._step = resources.Snapshot.EMPTY
        self._rest: rests.Rest | None = None
        """Where it stands still with others; what it holds is then known there alone."""
        self._settles = False
        """True when `_settled` goes with the target while it stands there."""

    @property
    def target(self) -> resources.Snapshot | None:
        """What the client shall hold in the end; None before the first `update`."""
        return self._target if self._rest is None else self._rest.target

    @property
    def current(self) -> resources.Snapshot:
        """The step that is being delivered."""
        return self._step if self._rest is None else self._rest.target

    def stay(self, rest: rests.Rest) -> None:
        """Stand still at a place where others hold the same and ask for the same.

        Only for a stream whose `wishes` are known, and whose target is that of the place. Nothing
        old is kept alive meanwhile.
        """
        self._settles = self._settled is self._target
        self._place(None)
        self._rest = rest

    def leave(self) -> None:
        """Be on its own again, with what was held at the place."""
        rest = self._rest
        if rest is not None:
            self._place(rest.target)
            self._rest = None
            rest.left(self)

    def _recall(self) -> None:
        """Take note of what is held, for those who look at each type."""
        if self._rest is not None:
            self._place(self._rest.target)

    def _place(self, target: resources.Snapshot | None) -> None:
        held = resources.Snapshot.EMPTY if target is None else target
        self._target, self._step = target, held
        if self._settles:
            self._settled = held
        for state in self._states.values():
            state.held = state.acked = held

    @abc.abstractmethod
    def _look(self, state: type_state.TypeState) -> None:
        """Mark a type dirty if something must be written for the present step."""

    def _gated(self) -> bool:
        """True for a client that takes all clusters; only for it can the order be kept."""
        clusters = self._states.get(types.CLUSTER.type_url)
        return clusters is not None and clusters.subscription.wildcard and clusters.answered

    def _route(self) -> None:
        """Make the first step to the target the one to deliver."""
        if self._target is None:
            return
        if self._gated():
            self._enter(self._first_step(self._target))
        else:
            self._enter(self._target)
        self._advance()

    def _first_step(self, target: resources.Snapshot) -> resources.Snapshot:
        base = self._step
        refused = {
            url: state
            for url, state in self._states.items()
            if state.type.gated and state.refused is not None
        }
        stuck = {url for url, state in refused.items() if state.stuck(target)}
        if types.CLUSTER.type_url in stuck:
            return transition.hold(base, target)
        changed = refused.keys() - stuck
        if changed:
            if self._settled is resources.Snapshot.EMPTY:
                if types.CLUSTER.type_url in changed:
                    return transition.straight(base, target)
                # What the client used before this stream may lead to any of the old clusters.
                return transition.beside(base, target)
            # A bad cluster must not stay in the union: what was refused was not reached.
            base = transition.rollback(self._settled, base, frozenset(changed))
        if base is resources.Snapshot.EMPTY:
            return target
        step = transition.next_step(base, target)
        if not (transition.only_adds(base, step) or (not changed and self._may_go_to(step))):
            step = transition.hold(base, target)  # `_advance` goes on from there
        if any(refused[url].stuck(base) and refused[url].stuck(step) for url in changed):
            # What is refused had been accepted before, so the way leads nowhere.
            return transition.straight(self._step, target)
        return step

    def _enter(self, step: resources.Snapshot) -> None:
        """Deliver a step; types that it does not change for this client are settled."""
        self._step = step
        for state in self._states.values():
            self._look(state)

    def _resume(self) -> None:
        """Clusters of an earlier stream are up to date: now their users, then what is gone."""
        clusters = self._states.get(types.CLUSTER.type_url)
        if clusters is None or clusters.resuming or self._target is None:
            return
        while self._waiting:
            self._look(self._states[self._waiting.pop()])
        if clusters.leftover and not clusters.outstanding and self._users_reached():
            clusters.doubt |= clusters.gone(self._step)
            clusters.leftover.clear()
            self._look(clusters)

    def _advance(self) -> None:
        """Go on to the next step when the present one is acknowledged."""
        self._resume()
        while self._target is not None:
            if self._gated() and self._reached():
                self._settled = self._step
            if self._step is self._target:
                return
            step = transition.next_step(self._step, self._target)
            if not self._may_go_to(step):
                return
            self._enter(step)

    def _may_go_to(self, step: resources.Snapshot) -> bool:
        """True when a step may follow the present one: that is acknowledged.

        Listeners or routes that are refused, and would be again, stay as they were and hold up
        nothing but the end of what they may use.
        """
        owing = [state for state in self._states.values() if state.type.gated and self._owes(state)]
        if not owing:
            return True
        return not transition.takes_away(self._step, step) and all(
            self._stays(state) for state in owing
        )

    def _stays(self, state: type_state.TypeState) -> bool:
        url = state.type.type_url
        waits = state.outstanding or url in self._dirty or url == types.CLUSTER.type_url
        return not waits and self._target is not None and state.stuck(self._target)

    def _reached(self) -> bool:
        """True when every gated type of the present step is acknowledged."""
        for state in self._states.values():  # noqa: SIM110  a generator for each answer is dear
            if state.type.gated and self._owes(state):
                return False
        return True

    def _users_reached(self) -> bool:
        """True when listeners and routes of the present step are acknowledged."""
        return not any(
            self._owes(state)
            for state in self._states.values()
            if state.type.gated and state.type.type_url != types.CLUSTER.type_url
        )

    def _owes(self, state: type_state.TypeState) -> bool:
        return state.outstanding or state.refused is not None or state.type.type_url in self._dirty
