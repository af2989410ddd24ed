# SPDX-License-Identifier: Apache-2.0
"""The port through which what is in force is kept, and one that keeps it in memory.

What is in force is data of the whole control plane and not of one process: with a store that
outlives it, a restarted replica builds the bytes that its sisters build, and an object that was
refused is not tried on the fleet again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pilothouse.config import admission


class AcceptedStore(Protocol):
    """Where the set of what is in force is kept.

    One set at a time, replaced as a whole. ``current`` is AT LEAST as fresh as the last ``keep``
    that this process was told to have succeeded and as the change last notified; it MAY be fresher.
    A set that was replaced never comes back. Verdicts need not be kept: they are worked out anew.
    No call blocks; what has to be written somewhere is written later, in order.
    """

    def current(self) -> admission.AcceptedSet:
        """What is in force; an empty set if nothing was ever kept."""

    def keep(
        self, accepted: admission.AcceptedSet, *, instead_of: admission.AcceptedSet
    ) -> admission.AcceptedSet:
        """Replace what is in force, unless somebody else did meanwhile.

        Args:
            accepted: What was decided.
            instead_of: The set that this was decided from.

        Returns:
            ``accepted`` if ``instead_of`` was current still; else what is current now, from which
            the caller decides again.
        """

    def subscribe(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Call ``notify`` after each replacement by others; the answer ends the subscription.

        A replacement by an equal set is none.
        """


class AcceptedInMemory:
    """Keeps it as long as this process lives; for one that is alone."""

    def __init__(self) -> None:
        """Begin with nothing in force."""
        self._current = admission.AcceptedSet()

    def current(self) -> admission.AcceptedSet:
        """What is in force."""
        return self._current

    def keep(
        self, accepted: admission.AcceptedSet, *, instead_of: admission.AcceptedSet
    ) -> admission.AcceptedSet:
        """Replace what is in force, if it is what the decision was made from."""
        if instead_of == self._current:
            self._current = accepted
        return self._current

    def subscribe(self, notify: Callable[[], None]) -> Callable[[], None]:
        """There are no others that could replace it."""
        del notify
        return lambda: None
