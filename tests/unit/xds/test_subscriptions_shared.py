# SPDX-License-Identifier: Apache-2.0
"""Streams that ask for the same names hold them once, and do not hear of each other."""

import gc

from pilothouse.xds import subscription

NAMES = [f"outbound|80||s{n}.default" for n in range(100)]


def _subscribed(names: list[str]) -> subscription.Subscription:
    one = subscription.Subscription(wildcard_type=False)
    # As from the wire: every request has strings of its own.
    one.change(add=["".join(name) for name in map(list, names)], remove=[], first=True)
    return one


def test_equal_names_are_one_object():
    """A thousand proxies with the same names cost the memory of one set."""
    one, other = _subscribed(NAMES), _subscribed(NAMES[::-1])
    assert one.names is other.names


def test_a_change_of_one_does_not_reach_the_other():
    """What one stream adds or drops is its own."""
    one, other, third = _subscribed(NAMES), _subscribed(NAMES), _subscribed(NAMES)
    one.change(add=["more"], remove=[], first=False)
    other.change(add=[], remove=NAMES[:1], first=False)
    assert one.names == {*NAMES, "more"}
    assert other.names == set(NAMES[1:])
    assert third.names == set(NAMES)


def test_names_nobody_asks_for_are_let_go():
    """Sharing keeps nothing alive."""
    gc.collect()
    before = len(subscription._known)
    one = _subscribed(NAMES)
    assert len(subscription._known) == before + 1
    del one
    gc.collect()
    assert len(subscription._known) == before
