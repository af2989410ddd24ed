# SPDX-License-Identifier: Apache-2.0
"""How far a stream is: what others ask of it, at every change and at every answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from pilothouse.xds import moves, resources, status, stepping

_NO_REFUSALS: Final[Mapping[str, str]] = {}


class Standing(stepping.Steps):
    """The part of a stream that is read."""

    _shares: ClassVar[bool] = False
    """True where streams at rest that ask for the same are told the same."""

    def __init__(self) -> None:
        """Begin with nothing asked."""
        super().__init__()
        self._wishes: moves.Wishes | None = None
        """What the client asks for, once it was looked at since the last change."""
        self._resting = False
        """True when nothing has been said by anybody since the client was seen to be at rest."""

    @property
    def in_sync(self) -> bool:
        """True when the client has acknowledged the whole target."""
        if self._resting:
            return True
        if self._target is None or self._step is not self._target or self._dirty:
            return False
        # No generator: this is asked of every stream at every change and answer, as is `idle`.
        for state in self._states.values():
            if state.outstanding or state.refused is not None:
                return False
        return True

    @property
    def idle(self) -> bool:
        """True when nothing is to be written and no answer is awaited."""
        if self._resting:
            return True
        if self._dirty:
            return False
        for state in self._states.values():  # noqa: SIM110  as above
            if state.outstanding:
                return False
        return True

    @property
    def refusals(self) -> Mapping[str, str]:
        """Type to the client's words, where what it refused is still what it shall hold."""
        if self._resting:
            return _NO_REFUSALS  # as nearly always
        return {
            url: state.error for url, state in self._states.items() if state.refused is not None
        }

    def claimed(self, type_url: str) -> bool:
        """True when the client held something of a type before this stream, by its own words."""
        state = self._states.get(type_url)
        return state is not None and state.returned

    def acked(self, type_url: str) -> resources.Snapshot:
        """The snapshot whose content of a type was acknowledged last."""
        state = self._states.get(type_url)
        if state is not None and self._rest is not None:
            return self._rest.target
        return state.acked if state is not None else resources.Snapshot.EMPTY

    @property
    def subscribed(self) -> tuple[str, ...]:
        """The types that the client has asked for, in the order it did."""
        return tuple(self._states)

    def types(self) -> tuple[status.TypeStatus, ...]:
        """How each subscribed type stands, sorted by type URL."""
        self._recall()
        return status.of_types(self._states.values())

    def statuses(self) -> tuple[status.ResourceStatus, ...]:
        """How each resource that the client asked for stands, sorted by type URL and name."""
        self._recall()
        target = resources.Snapshot.EMPTY if self._target is None else self._target
        return tuple(status.of_resources(self._states.values(), target))

    @property
    def wishes(self) -> moves.Wishes | None:
        """What the client asks for, if it holds its target and shares what it is told; else None.

        Equal wishes are one object.
        """
        if not (self._resting or self._rests()):
            return None
        self._resting = True
        return self._asks()

    def _asks(self) -> moves.Wishes:
        if self._wishes is None:
            self._wishes = moves.wishes(self._states)
        return self._wishes

    def _rests(self) -> bool:
        """True when the client holds the target and nothing is left to say, as with all alike."""
        if not self._shares or self._dirty or self._waiting or self._step is not self._target:
            return False
        for state in self._states.values():  # noqa: SIM110  as in `idle`
            if not state.rests(self._step):
                return False
        return True
