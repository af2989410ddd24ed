# SPDX-License-Identifier: Apache-2.0
"""The ledger counts what proxies need, run and refuse."""

from pilothouse.model import keys
from pilothouse.rollout import ledger
from pilothouse.xds import resources, types

RULE = keys.ObjectKey("RouteRule", "default", "reviews")
OTHER = keys.ObjectKey("RouteRule", "default", "ratings")
ROUTE = types.ROUTE.type_url


def _snapshot(*named: tuple[str, bytes, keys.ObjectKey]) -> resources.Snapshot:
    layer = resources.Layer.of(
        resources.Resource.of(ROUTE, name, body, origins=(origin,)) for name, body, origin in named
    )
    return resources.Snapshot.of((layer,))


def _position(
    target: resources.Snapshot, acked: resources.Snapshot, *, refused: bool = False
) -> ledger.Position:
    place = ledger.TypePosition(type_url=ROUTE, acked=acked, refused=refused)
    return ledger.Position(target=target, types=(place,), in_sync=acked is target)


def test_a_proxy_in_sync_has_acknowledged_all_that_it_needs() -> None:
    """In sync means that everything needed is acknowledged."""
    target = _snapshot(("a", b"1", RULE), ("b", b"1", OTHER))

    counted = ledger.count({_position(target, target): 3})

    assert counted == {
        OTHER: ledger.Counts(needed=3, acked=3),
        RULE: ledger.Counts(needed=3, acked=3),
    }


def test_only_the_objects_that_changed_are_pending() -> None:
    """A proxy that still has to acknowledge one object runs the others."""
    old = _snapshot(("a", b"1", RULE), ("b", b"1", OTHER))
    new = _snapshot(("a", b"2", RULE), ("b", b"1", OTHER))

    counted = ledger.count({_position(new, old): 1, _position(new, new): 1})

    assert counted[RULE] == ledger.Counts(needed=2, acked=1)
    assert counted[OTHER] == ledger.Counts(needed=2, acked=2)


def test_a_refusal_is_told_of_the_objects_that_were_in_it() -> None:
    """Who refused a response refused what changed in it, and nothing else."""
    old = _snapshot(("a", b"1", RULE), ("b", b"1", OTHER))
    new = _snapshot(("a", b"2", RULE), ("b", b"1", OTHER))

    counted = ledger.count({_position(new, old, refused=True): 1})

    assert counted[RULE] == ledger.Counts(needed=1, acked=0, refused=1)
    assert counted[OTHER] == ledger.Counts(needed=1, acked=1, refused=0)


def test_an_object_nobody_needs_is_not_counted() -> None:
    """What a proxy no longer holds in its target, it does not need."""
    old = _snapshot(("a", b"1", RULE))
    new = _snapshot(("b", b"1", OTHER))

    assert set(ledger.count({_position(new, old): 1})) == {OTHER}


def test_an_object_whose_resource_was_taken_away_is_pending() -> None:
    """A removal counts until it is acknowledged, for an object that is still needed elsewhere."""
    old = _snapshot(("a", b"1", RULE), ("b", b"1", RULE))
    new = _snapshot(("a", b"1", RULE))

    assert ledger.count({_position(new, old): 1})[RULE] == ledger.Counts(needed=1, acked=0)


def test_an_object_behind_two_layers_of_a_target_is_needed_once() -> None:
    """Layers are shared, and what is in several of one proxy's is still one proxy's."""
    shared = resources.Layer.of(
        resources.Resource.of(ROUTE, name, b"1", origins=(RULE, OTHER)) for name in ("a", "b")
    )
    own = [
        resources.Layer.of((resources.Resource.of(ROUTE, name, b"1", origins=(RULE,)),))
        for name in ("c", "d", "e")
    ]
    alone = resources.Snapshot.of((shared,))
    both = resources.Snapshot.of((shared, own[0]))
    three = resources.Snapshot.of((own[1], shared, own[2]))
    groups = {_position(alone, alone): 1, _position(both, both): 10, _position(three, three): 100}

    counted = ledger.count(groups)

    assert counted == dict.fromkeys((OTHER, RULE), ledger.Counts(needed=111, acked=111))


def test_what_a_proxy_does_not_need_it_does_not_lack() -> None:
    """Somebody else needs an object whose resource one proxy is to give up."""
    old = _snapshot(("a", b"1", RULE), ("b", b"1", OTHER))
    new = _snapshot(("a", b"1", RULE))
    groups = {_position(new, old, refused=True): 1, _position(old, old): 5}

    assert ledger.count(groups)[OTHER] == ledger.Counts(needed=5, acked=5)
