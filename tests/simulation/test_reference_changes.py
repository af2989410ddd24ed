# SPDX-License-Identifier: Apache-2.0
"""What proxies are sent after a change is what they would be sent if it had always been so.

A planner and a translator remember what they made. In a row of generated worlds, most of whose
parts are those of the world before, every proxy must get the bytes of one that remembers nothing.
"""

from __future__ import annotations

import random

import pytest

from pilothouse.xds import resources
from tests.support import reference_planned as planned
from tests.support import reference_values as values
from tests.support import reference_worlds as worlds

CLIENTS = (
    *worlds.CLIENTS,
    values.Client(namespace="default", labels=worlds.EDGE, port=80),
)


def told(snapshot: resources.Snapshot) -> dict[tuple[str, str], tuple[object, ...]]:
    """All that a proxy holds: bytes, what these refer to, and what they came from."""
    return {
        (type_url, name): (each.body, each.version, each.references, each.origins)
        for type_url in snapshot.types
        for name, each in snapshot.resources(type_url).items()
    }


def changed(world: worlds.World, other: worlds.World, chance: random.Random) -> worlds.World:
    """Another world: some objects go, some become those of a third world, some come from there."""
    theirs = {(each["kind"], *worlds.key(each)): each for each in other}
    found = {}
    for each in world:
        name = (each["kind"], *worlds.key(each))
        fate = chance.random()
        if fate < 0.7 or each in worlds.ALWAYS:
            found[name] = each
        elif fate < 0.9 and name in theirs:
            found[name] = theirs[name]
    for name, each in theirs.items():
        if chance.random() < 0.2:
            found.setdefault(name, each)
    return [found[name] for name in sorted(found)]


@pytest.mark.parametrize("seed", range(4))
def test_nothing_of_the_past_is_left(seed: int) -> None:
    """Also back in the first world at the end."""
    chance = random.Random(seed)
    first, _ = worlds.case(seed, rules=6)
    row = [first]
    for number in range(8):
        other, _ = worlds.case(1000 + 10 * seed + number, rules=6)
        row.append(changed(row[-1], other, chance))
    before: planned.Planned | None = None
    for world in [*row, first]:
        before = planned.Planned(world, before)
        fresh = planned.Planned(world)
        for client in CLIENTS:
            held, anew = told(before.snapshot(client)), told(fresh.snapshot(client))
            assert held.keys() == anew.keys()
            differing = [name for name, one in held.items() if one != anew[name]]
            assert differing == [], client


def test_two_proxies_in_a_row_do_not_disturb_each_other() -> None:
    """Whoever asks first."""
    for seed in range(20, 30):
        world, _ = worlds.case(seed, rules=6)
        one, other = planned.Planned(world), planned.Planned(world)
        forwards = {client: told(one.snapshot(client)) for client in CLIENTS}
        backwards = {client: told(other.snapshot(client)) for client in reversed(CLIENTS)}
        assert forwards == backwards
