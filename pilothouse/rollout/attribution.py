# SPDX-License-Identifier: Apache-2.0
"""Who may be to blame when a proxy refuses a response, and whom the refusal concerns. Pure.

A response is refused as a whole, and its words are for people. What is sure: before, the proxy
accepted; so the reason lies in what changed since. Suspects are the objects that changed since, and
from which a changed resource of the refused type comes. Words that name a resource bring its
objects to the front. They never make a suspect, and never clear one.

A proxy that is old or odd must not hold back the fleet: an object is held for all proxies only when
nobody has accepted the very same resources, and for one that refuses otherwise.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterable, Mapping
from typing import Final

from pilothouse.config import objects
from pilothouse.model import keys
from pilothouse.xds import resources, types

InForce = Mapping[keys.ObjectKey, objects.Config]

_BIND: Final = re.compile(r"cannot bind|Address already in use|Cannot assign requested address")
"""How Envoy says that the machine has no such address, or that a port is taken."""
_NAME: Final = r"[A-Za-z0-9_|%=,~-]"
"""What may stand beside a name and make it another one; a dot may end a sentence."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Suspects:
    """Who may be to blame, each once, in key order."""

    named: tuple[keys.ObjectKey, ...] = ()
    """Of resources that the words name."""
    others: tuple[keys.ObjectKey, ...] = ()

    @property
    def all(self) -> tuple[keys.ObjectKey, ...]:
        """All of them."""
        return tuple(sorted((*self.named, *self.others)))

    def __bool__(self) -> bool:
        """True when there are any."""
        return bool(self.named or self.others)


def suspects(
    changed: Iterable[resources.Resource], *, before: InForce, now: InForce, words: str = ""
) -> Suspects:
    """Who may be to blame for a refusal.

    Args:
        changed: Resources of the refused type that differ from what the proxy accepted.
        before: The objects behind what it accepted; empty if it never accepted anything.
        now: The objects behind what it refused.
        words: The proxy's own.

    Returns:
        Objects that are in force now, in another generation than before. An object that was
        deleted cannot be held, so it is none.
    """
    named: set[keys.ObjectKey] = set()
    others: set[keys.ObjectKey] = set()
    for resource in changed:
        found = named if names(words, resource.name) else others
        found.update(key for key in resource.origins if key in now and before.get(key) != now[key])
    return Suspects(named=tuple(sorted(named)), others=tuple(sorted(others - named)))


def names(words: str, name: str) -> bool:
    """Tell whether a text names a resource, and not only one whose name contains its name."""
    if not name or name not in words:
        return False
    return re.search(rf"(?<!{_NAME}){re.escape(name)}(?!{_NAME}|\.\w)", words) is not None


def is_local(type_url: str, words: str) -> bool:
    """Tell whether a refusal is about the proxy's machine, and not about any object.

    A port that is taken there costs that listener there; the object is right all the same.
    """
    if type_url != types.LISTENER.type_url:
        return False
    lines = [line for line in words.splitlines() if line.strip()]
    return bool(lines) and all(_BIND.search(line) for line in lines)


def without_local(words: str) -> str:
    """The words without the lines that are about the proxy's machine."""
    return "\n".join(line for line in words.splitlines() if not _BIND.search(line))


class Scope(enum.Enum):
    """Whom a refusal concerns."""

    FLEET = enum.auto()
    """Nobody took it: the object is held for all."""
    PROXY = enum.auto()
    """Somebody took the very same: it is held for those that refuse."""
    OPEN = enum.auto()
    """Some have not answered yet; meanwhile it is held for those that refuse."""


def scope(*, accepted: bool, waiting: int) -> Scope:
    """Decide whom a refusal concerns.

    Args:
        accepted: True if some other proxy has accepted the very same versions.
        waiting: Other proxies that are to hold them, and have not answered.
    """
    if accepted:
        return Scope.PROXY
    return Scope.OPEN if waiting else Scope.FLEET
