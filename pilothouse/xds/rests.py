# SPDX-License-Identifier: Apache-2.0
"""Places where streams stand still together.

Streams that ask for the same, and hold the same, need not be given a new target one by one when
nothing in it is for them: they stand at one place, and the place gets it. A stream leaves as soon
as its client says something, or it is given a target of its own; it is then where it would be if it
had been moved each time.
"""

from __future__ import annotations

import abc
from typing import Protocol

from pilothouse.xds import resources


class Staying(Protocol):
    """A stream that stands somewhere. Compared by identity."""

    def leave(self) -> None:
        """Be on its own again."""


class Rest(abc.ABC):
    """A place, and what everybody there holds."""

    __slots__ = ("__weakref__", "target")

    def __init__(self, target: resources.Snapshot) -> None:
        """Begin with nobody there."""
        self.target = target

    @abc.abstractmethod
    def left(self, stream: Staying) -> None:
        """A stream has left; it holds what was the target then."""
