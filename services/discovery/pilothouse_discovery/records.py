# SPDX-License-Identifier: Apache-2.0
"""What is known of one client that may refuse, and questions to its stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from typing import Final

from pilothouse.config import objects
from pilothouse.model import keys
from pilothouse.rollout import attribution, cases, trials
from pilothouse.xds import resources
from pilothouse_discovery import clients

Held = Mapping[keys.ObjectKey, objects.Config | None]
"""Objects that one proxy is given in another content than the fleet; None: not at all."""
NOTHING: Final[Held] = {}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """One object that is held for one proxy."""

    config: objects.Config
    """What it refuses."""
    instead: objects.Config | None
    words: str


@dataclasses.dataclass(slots=True, kw_only=True)
class Search:
    """A search for culprits that is under way on one client."""

    type_url: str
    version: str
    """Of all of the type in the target that was refused."""
    words: str
    group: Hashable
    """Equal for clients that refuse the same, for the same reasons."""
    trial: trials.Trial
    before: attribution.InForce
    now: attribution.InForce
    changed: tuple[resources.Resource, ...]
    base: attribution.InForce = dataclasses.field(default_factory=dict)
    """What was in force when it began: what changes meanwhile stays for this client."""
    bare: bool = False
    """True when what the client never accepted is left out, even if others ran it."""
    first: clients.Client | None = None
    """Who was searched before, if this one is to say which of the culprits it refuses too."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Record:
    """What is known of one client."""

    view: attribution.InForce = dataclasses.field(default_factory=dict)
    """The objects that its target was made from."""
    confirmed: attribution.InForce = dataclasses.field(default_factory=dict)
    """The objects behind what it accepted last."""
    lagging: dict[str, attribution.InForce] = dataclasses.field(default_factory=dict)
    """By type, the same where it refused since."""
    tried: dict[str, str] = dataclasses.field(default_factory=dict)
    """By type, the version of content for whose refusal nobody is to blame."""
    holds: dict[keys.ObjectKey, Hold] = dataclasses.field(default_factory=dict)
    cleared: dict[keys.ObjectKey, objects.Config] = dataclasses.field(default_factory=dict)
    """What it was found not to refuse, while it refused something else."""
    search: Search | None = None
    waits_for: Hashable = None
    """The group of the search whose result it waits for."""
    held: Held = dataclasses.field(default_factory=lambda: NOTHING)
    given: Held = dataclasses.field(default_factory=lambda: NOTHING)
    """What was held when its target was made; the same object as ``held`` once it has that."""

    @property
    def searched(self) -> bool:
        """True while it is to be found out what it refuses."""
        return self.search is not None or self.waits_for is not None


def instead(
    config: objects.Config, before: attribution.InForce, fallbacks: attribution.InForce
) -> objects.Config | None:
    """What an object is given as where it is held; None for not at all.

    As it was when the client accepted it; else as others ran it.
    """
    last = before.get(config.key)
    if last is None or last == config:
        last = fallbacks.get(config.key)
    return None if last == config else last


def pinned(search: Search, now: attribution.InForce) -> Held:
    """What changed in force, as the client had it: no change must be taken for an answer."""
    base = search.base
    if base is now:
        return NOTHING
    changed = {key for key in base.keys() | now.keys() if base.get(key) != now.get(key)}
    return {key: search.now.get(key) for key in sorted(changed)}


def overlaid(in_force: attribution.InForce, held: Held) -> attribution.InForce:
    """What is in force for one proxy."""
    found = {key: config for key, config in in_force.items() if key not in held}
    return found | {key: config for key, config in held.items() if config is not None}


def runs(client: clients.Client, versions: cases.Versions) -> bool:
    """Tell whether a client has accepted all of these."""
    stream = client.session.stream
    return bool(versions) and all(
        (one := stream.acked(url).get(url, name)) is not None and one.version == version
        for url, name, version in versions
    )


def is_to_run(client: clients.Client, versions: cases.Versions) -> bool:
    """Tell whether a client is to hold all of these, and has not answered yet."""
    stream = client.session.stream
    target = stream.target
    return (
        target is not None
        and not stream.idle
        and all(
            (one := target.get(url, name)) is not None and one.version == version
            for url, name, version in versions
        )
    )


def needs(client: clients.Client, key: keys.ObjectKey) -> bool:
    """Tell whether something that a client is to hold comes from an object."""
    target = client.session.stream.target
    return target is not None and any(key in layer.origins for layer in target.layers)
