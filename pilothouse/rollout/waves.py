# SPDX-License-Identifier: Apache-2.0
"""Push waves: from the push of a build's changes to the last acknowledgement.

A proxy is done with a wave when it is in sync with that wave's snapshot or a newer one; a proxy
that refuses, or that goes away, is done as well and is counted apart. Times are given by the
caller, in nanoseconds of one clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

SLOWEST = 3
"""How many of the slowest proxies a finished wave names."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOutcome:
    """What became of a wave at one proxy."""

    proxy: str
    """Node id."""
    at: int
    """When it was known, in nanoseconds."""
    refused: str = ""
    """The proxy's words when it refused; empty otherwise."""
    gone: bool = False
    """True when its stream ended first."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """A push that is under way."""

    number: int
    """Grows by one with every wave."""
    started: int
    pending: frozenset[str]
    """Ids of the streams that have not answered."""
    outcomes: tuple[ProxyOutcome, ...] = ()

    @property
    def done(self) -> bool:
        """True when every stream has answered or gone."""
        return not self.pending

    @property
    def acked(self) -> int:
        """Proxies that acknowledged everything."""
        return sum(1 for outcome in self.outcomes if not outcome.refused and not outcome.gone)

    @property
    def refused(self) -> tuple[ProxyOutcome, ...]:
        """Proxies that refused, sorted by node id."""
        return tuple(
            sorted((outcome for outcome in self.outcomes if outcome.refused), key=lambda o: o.proxy)
        )

    @property
    def ended(self) -> int:
        """When the last answer came; the start when nobody was asked."""
        return max((outcome.at for outcome in self.outcomes), default=self.started)

    @property
    def slowest(self) -> tuple[ProxyOutcome, ...]:
        """The proxies that acknowledged last, the slowest first."""
        acked = [outcome for outcome in self.outcomes if not outcome.refused and not outcome.gone]
        return tuple(sorted(acked, key=lambda o: (-o.at, o.proxy))[:SLOWEST])


class WaveBook:
    """The waves under way.

    One stream may be pending in several: a newer snapshot answers for all older ones.
    """

    def __init__(self) -> None:
        """Begin with no wave."""
        self._waves: dict[int, _Open] = {}
        self._number = 0

    def open(self, streams: Iterable[str], *, at: int) -> Wave:
        """Begin a wave to these streams; a wave to nobody is done at once and not kept."""
        self._number += 1
        wave = _Open(number=self._number, started=at, pending=set(streams))
        if wave.pending:
            self._waves[wave.number] = wave
        return wave.value()

    def settle(self, stream: str, outcome: ProxyOutcome) -> tuple[Wave, ...]:
        """Note what a stream answered, for every wave it is pending in.

        Returns:
            The waves that this finished.
        """
        finished = []
        for wave in [wave for wave in self._waves.values() if stream in wave.pending]:
            wave.pending.discard(stream)
            wave.outcomes.append(outcome)
            if not wave.pending:
                del self._waves[wave.number]
                finished.append(wave.value())
        return tuple(finished)

    def under_way(self) -> tuple[Wave, ...]:
        """The waves that are not done, the oldest first."""
        return tuple(wave.value() for wave in self._waves.values())


@dataclasses.dataclass(slots=True, kw_only=True)
class _Open:
    """A wave while answers come in: a new value for each would cost the square of the proxies."""

    number: int
    started: int
    pending: set[str]
    outcomes: list[ProxyOutcome] = dataclasses.field(default_factory=list)

    def value(self) -> Wave:
        return Wave(
            number=self.number,
            started=self.started,
            pending=frozenset(self.pending),
            outcomes=tuple(self.outcomes),
        )
