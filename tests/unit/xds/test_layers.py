# SPDX-License-Identifier: Apache-2.0
"""Layers that are made from others are what they would be anyway."""

from __future__ import annotations

import gc
import random
import weakref

import hypothesis
import pytest
from hypothesis import strategies as st

from pilothouse.xds import differences, resources

TYPES = ("type.googleapis.com/one", "type.googleapis.com/other")
NAMES = ("a", "b", "c")


def resource(type_url: str, name: str, content: int) -> resources.Resource:
    return resources.Resource.of(type_url, name, str(content).encode())


def whole() -> list[resources.Resource]:
    return [resource(type_url, name, 0) for type_url in TYPES for name in NAMES]


def replaced(
    layer: resources.Layer, edits: list[tuple[str, str, int]]
) -> tuple[resources.Layer, list[resources.Resource]]:
    """The layer with other contents, and all that is in it then."""
    news = {(url, name): resource(url, name, content) for url, name, content in edits}
    pairs = [(old, news[key]) for key in news if (old := layer.get(*key)) is not None]
    now = [news.get((one.type_url, one.name), one) for one in layer]
    return layer.replacing(tuple(pairs)), now


def facts(layer: resources.Layer) -> object:
    """All that a layer says of itself, in its order."""
    return (
        [(one.type_url, one.name, one.body) for one in layer],
        layer.types,
        [(url, layer.digest(url), [*layer.versions(url).items()]) for url in TYPES],
        [resources.Snapshot.of((layer,)).version(url) for url in TYPES],
    )


EDITS = st.lists(
    st.tuples(st.sampled_from(TYPES), st.sampled_from(NAMES), st.integers(0, 2)), max_size=4
)


@hypothesis.given(st.lists(st.tuples(EDITS, st.booleans(), st.booleans()), max_size=6))
def test_history_makes_no_difference(steps: list[tuple[list[tuple[str, str, int]], bool, bool]]):
    """Whatever was replaced, asked meanwhile, and is gone by now: as if made at once."""
    layer = resources.Layer.of(whole())
    held = [layer]
    for edits, asked, kept in steps:
        before = layer
        layer, now = replaced(before, edits)
        same = resources.Layer.of(random.Random(0).sample(now, len(now)))
        if asked:
            assert facts(layer) == facts(same)
        for url in TYPES:
            alone = [resources.Snapshot.of((one,)) for one in (before, layer, same)]
            found = differences.diff(alone[0], alone[1], url)
            assert found == differences.diff(alone[0], alone[2], url)
        if kept:
            held.append(before)
    expected = facts(resources.Layer.of(layer))
    assert facts(layer) == expected


def test_a_layer_keeps_neither_what_it_was_made_from_nor_what_was_replaced():
    """What nobody else holds is gone, and what the layer says is as before."""
    old = resource(TYPES[0], "a", 0)
    new = resource(TYPES[0], "a", 1)
    base = resources.Layer.of([old, resource(TYPES[0], "b", 0)])
    layer = base.replacing(((old, new),))
    assert layer.made_from == (base, ((old, new),))
    assert [*layer.beyond({base})] == [new]
    gone = weakref.ref(old), weakref.ref(base)

    del old, base
    gc.collect()

    assert [one() for one in gone] == [None, None]
    assert layer.made_from is None
    assert len([*layer.beyond(())]) == 2
    assert facts(layer) == facts(resources.Layer.of(layer))


def test_only_what_is_there_can_be_replaced_and_only_by_its_like():
    """A resource of another name, or one that is not in the layer, is a mistake of ours."""
    a, b = resource(TYPES[0], "a", 0), resource(TYPES[0], "b", 0)
    layer = resources.Layer.of([a])

    for pair in ((a, b), (b, b), (resource(TYPES[0], "a", 0), a)):
        with pytest.raises(ValueError, match="cannot be replaced"):
            layer.replacing((pair,))
