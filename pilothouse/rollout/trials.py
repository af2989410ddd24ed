# SPDX-License-Identifier: Apache-2.0
"""Which of several suspects are to blame: found by trying them in halves, on one proxy.

What is known at the start: with all suspects as they are now the proxy refuses. A trial gives it
some of them as they are now and holds the others as they were; it answers by accepting or refusing.

1. All are held. If that is refused too, none of them is to blame, and the trial ends so.
2. A group that is known to hold a culprit is halved, and its first half released. Accepted: the
   half is cleared and stays released, so the culprit is in the other one. Refused: it is in the
   first, and of the second nothing is known.
3. A group of one that is known to hold a culprit is a culprit. What is left over is then tried as
   one group.

A proxy that runs something already, of which nothing is known, must not lose it: so there, in place
of the first step, small groups are held one after the other, and all others released. A trial that
is refused takes nothing away; the first that is accepted has all the culprits, and the search goes
on in that group. If none is, the search ends without anybody to blame (`begin_gently`).

Suspects that the refusal names come first, as a group of their own. A cleared suspect never becomes
held again, so what is good comes into force while the trial goes on. Each answer settles a suspect
or halves a group: it ends after at most `bound` answers, whatever they are. If each culprit makes
the proxy refuse by itself, exactly those are found; if only some of them together do, enough of
them are found to make it accept. No clock and no stream in here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final

from pilothouse.model import keys

Keys = tuple[keys.ObjectKey, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Suspects that are tried together."""

    suspects: Keys
    bad: bool = False
    """True when one of them at least is to blame."""
    vouches: bool = False
    """True when clearing this group means that the next one is bad."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Where the search is. `held` says what to try next, `answer` takes what came of it."""

    groups: tuple[Group, ...]
    """Those not settled, the next to be tried first."""
    culprits: Keys = ()
    cleared: Keys = ()
    begun: bool = False
    """False while the first trial, which holds all, is under way."""
    alone: int | None = None
    """The group that alone is held, in a search that begins gently; None in others."""
    blameless: bool = False
    """True at the end when the proxy refuses whatever is held."""

    @property
    def done(self) -> bool:
        """True when nothing is left to be tried."""
        return not self.groups

    @property
    def held(self) -> frozenset[keys.ObjectKey]:
        """What must be as it was, in the present trial or, when done, from now on."""
        if self.alone is not None:
            return frozenset(self.groups[self.alone].suspects)
        waiting = self.groups[1:] if self.begun else self.groups
        return frozenset((*self.culprits, *(one for group in waiting for one in group.suspects)))

    @property
    def suspected(self) -> frozenset[keys.ObjectKey]:
        """All but those that are cleared."""
        return self.unsettled.union(self.culprits)

    @property
    def suspects(self) -> frozenset[keys.ObjectKey]:
        """All that the search was begun with, if it did not end without anybody to blame."""
        return self.suspected.union(self.cleared)

    @property
    def unsettled(self) -> frozenset[keys.ObjectKey]:
        """The suspects that are neither cleared nor found to be culprits."""
        return frozenset(one for group in self.groups for one in group.suspects)

    def answer(self, *, accepted: bool) -> Trial:
        """What is known after the present trial was accepted or refused.

        Raises:
            ValueError: the trial is done.
        """
        if self.done:
            raise ValueError("the trial is done")
        if self.alone is not None:
            return _after_alone(self, self.alone, accepted=accepted)
        if not self.begun:
            if not accepted:
                return _BLAMELESS
            return _next(dataclasses.replace(self, begun=True))
        first, *rest = self.groups
        if accepted:
            if first.vouches and rest:
                rest[0] = dataclasses.replace(rest[0], bad=True)
            cleared = (*self.cleared, *first.suspects)
            return _next(dataclasses.replace(self, groups=tuple(rest), cleared=cleared))
        bad = dataclasses.replace(first, bad=True, vouches=False)
        return _next(dataclasses.replace(self, groups=(bad, *rest)))


def begin(named: Iterable[keys.ObjectKey], others: Iterable[keys.ObjectKey] = ()) -> Trial:
    """Begin a search.

    Args:
        named: Suspects that the refusal seems to speak of.
        others: All other suspects. In any order, both.
    """
    first = tuple(sorted(set(named)))
    second = tuple(sorted(set(others) - set(first)))
    if not first or not second:
        only = first or second
        return Trial(groups=(Group(suspects=only, bad=True),) if only else ())
    return Trial(groups=(Group(suspects=first, vouches=True), Group(suspects=second)))


def begin_gently(named: Iterable[keys.ObjectKey], others: Iterable[keys.ObjectKey] = ()) -> Trial:
    """Begin a search on a proxy that must not lose what it runs; arguments as of `begin`."""
    first = tuple(sorted(set(named)))
    second = tuple(sorted(set(others) - set(first)))
    groups = (*_split(first), *_split(second))
    return Trial(groups=groups, alone=0 if groups else None)


def bound(suspects: int, culprits: int) -> int:
    """The most answers that a search can take.

    The first trial; then for each culprit as many as it takes to halve down to it, and one for all
    that is left over; and one more where the refusal named some. One that begins gently takes up to
    15 more.
    """
    return 2 + culprits * ((suspects - 1).bit_length() + 1) if suspects else 0


_BLAMELESS: Final = Trial(groups=(), begun=True, blameless=True)
_PARTS: Final = 8
"""Groups that are held alone, of those that are named and of the others."""


def _split(suspects: Keys) -> tuple[Group, ...]:
    size = -(-len(suspects) // _PARTS) or 1
    return tuple(
        Group(suspects=suspects[start : start + size]) for start in range(0, len(suspects), size)
    )


def _after_alone(trial: Trial, alone: int, *, accepted: bool) -> Trial:
    if accepted:
        others = (group for place, group in enumerate(trial.groups) if place != alone)
        return _next(
            Trial(
                groups=(dataclasses.replace(trial.groups[alone], bad=True),),
                cleared=tuple(one for group in others for one in group.suspects),
                begun=True,
            )
        )
    if alone + 1 == len(trial.groups):
        return _BLAMELESS
    return dataclasses.replace(trial, alone=alone + 1)


def _next(trial: Trial) -> Trial:
    """Settle what needs no trial, and halve what is known to be bad."""
    while trial.groups and trial.groups[0].bad:
        first, *rest = trial.groups
        if len(first.suspects) > 1:
            return dataclasses.replace(trial, groups=(*_halves(first), *rest))
        trial = dataclasses.replace(
            trial, groups=_merged(rest), culprits=(*trial.culprits, *first.suspects)
        )
    return trial


def _halves(group: Group) -> tuple[Group, Group]:
    middle = len(group.suspects) // 2
    return (
        Group(suspects=group.suspects[:middle], vouches=True),
        Group(suspects=group.suspects[middle:]),
    )


def _merged(groups: list[Group]) -> tuple[Group, ...]:
    """What is left over, of which nothing is known."""
    left = tuple(sorted(one for group in groups for one in group.suspects))
    return (Group(suspects=left),) if left else ()
