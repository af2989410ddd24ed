# SPDX-License-Identifier: Apache-2.0
"""What a change makes a stream say, worked out once for all streams that are alike.

A thousand proxies that ask for the same names and have acknowledged all they were told have the
same answer to a changed endpoint. Four things let them share it:

- What a stream at rest says next depends on two things alone: on what it asks for (`Wishes`), and
  on the layers that the change replaces, not on the snapshot that they are part of, which is
  another one for each workload. So the `Move` of the first stream that goes it is remembered by
  those, for delta streams, and the others take it over.
- A response numbers itself when it is made, not when a stream writes it: nonces must be unique for
  a type on a stream, and need not count. So the same bytes go to all, nonce included.
- What a new client is told first of a type that it names, and of which one layer has all, depends
  on the names. The last few answers are kept with the layer: they are hundreds of kilobytes.
- A stream that is not concerned has nothing to compare: it takes over a move with nothing to say.

Measured in thread time, with 1,000 services and 300 streams of two types, without gRPC, in us a
stream before and after: of an endpoint that all of them watch, the new target 8.3 and 3.2, the
response 9.3 and 1.9, the acknowledgement 5.3 and 4.1. Of one that nobody watches: 8.8 and 2.8. All
clusters and endpoints for a new client: 1,960 and 700.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Hashable, Mapping, MutableMapping

from pilothouse.xds import content, memo, resources, type_state, types


class Wishes:
    """What a stream asks for, of all types. One object for all that ask for the same."""

    __slots__ = ("__weakref__",)


_Asked = tuple[tuple[types.ResourceType, bool, frozenset[str]], ...]
_wishes: weakref.WeakValueDictionary[_Asked, Wishes] = weakref.WeakValueDictionary()


def wishes(states: Mapping[str, type_state.TypeState]) -> Wishes:
    """The wishes of a stream with these types, in the order in which it asked for them."""
    asked = tuple(
        (state.type, state.subscription.wildcard, state.subscription.shared())
        for state in states.values()
    )
    return _wishes.setdefault(asked, Wishes())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """How a stream at rest gets from one target to the next, if it can be there at once.

    It holds no snapshot: it is remembered for as long as the layers between which it leads.
    """

    contents: Mapping[str, content.Content]
    """Type URL to what is to be written; types that are not here hold the new target already."""
    reached: bool
    """True when every type that follows the steps of make-before-break does."""


_moves: memo.Pairs[resources.Layer, Move] = memo.Pairs()
_MOST = 3
"""Layers that a move replaces at most; it is remembered with the first of them."""


Way = tuple[MutableMapping[Hashable, Move], tuple[Hashable, ...]]
"""Where moves between two snapshots are remembered, and by what beside the wishes."""
_ways: memo.Pairs[resources.Snapshot, Way | None] = memo.Pairs()


def way(old: resources.Snapshot, new: resources.Snapshot) -> Way | None:
    """The way from one to the other; None where too much is replaced to be remembered."""
    found = _ways.of(old, new)
    if not found:
        found[""] = _way(old, new)
    return found[""]


def _way(old: resources.Snapshot, new: resources.Snapshot) -> Way | None:
    if len(old.layers) != len(new.layers):
        return None
    layers = zip(old.layers, new.layers, strict=True)
    replaced = [pair for pair in layers if pair[0] is not pair[1]]
    if not 0 < len(replaced) <= _MOST:
        return None
    return _moves.of(*replaced[0]), tuple(replaced[1:])


_Firsts = dict[frozenset[str], content.Content | None]
_firsts: weakref.WeakKeyDictionary[resources.Layer, dict[types.ResourceType, _Firsts]] = (
    weakref.WeakKeyDictionary()
)
_KEPT = 4
"""First answers of one type that are kept with a layer."""


def firsts(view: resources.Snapshot, state: type_state.TypeState) -> _Firsts | None:
    """The first answers of a type by the names that are asked for, to be read and added to.

    None if more than the names counts: for who takes everything, asks for only some of its names
    anew, or has a past; and if not exactly one layer has resources of the type.
    """
    wanted = state.subscription
    past = state.answered or state.claimed or state.told or state.doubt
    if not state.whole or wanted.wildcard or past or state.forced != wanted.names:
        return None
    url = state.type.type_url
    having = [layer for layer in view.layers if layer.resources(url)]
    if len(having) != 1:
        return None
    found = _firsts.setdefault(having[0], {}).setdefault(state.type, {})
    while len(found) > _KEPT:
        del found[next(iter(found))]
    return found
