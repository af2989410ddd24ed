# SPDX-License-Identifier: Apache-2.0
"""The steps from one snapshot to another."""

import gc
import weakref

import pytest

from pilothouse.xds import resources, transition
from tests.support.xds_peer import CDS, ECDS, EDS, LDS, RDS, cluster, resource, route, snapshot


def _mesh(*names, to=None, content="1"):
    clusters = [cluster(name, content) for name in names]
    leaves = [resource(EDS, name) for name in names]
    return snapshot(*clusters, *leaves, route("r", *(to or names)))


def _path(current, target):
    """All steps, the target included."""
    steps = []
    while current is not target:
        current = transition.next_step(current, target)
        steps.append(current)
        assert len(steps) < 10
    return steps


def _shape(step):
    """Clusters, endpoints, and where the route leads."""
    routes = step.get(RDS, "r")
    return (
        "".join(step.resources(CDS)),
        "".join(step.resources(EDS)),
        routes.body.decode().partition("=")[2] if routes else "",
    )


def test_repointing_takes_three_steps_and_the_leaves_go_last():
    """{X, Y}; the route to Y; {Y}; and then the endpoints of X, which nobody asks for any more."""
    steps = [_shape(step) for step in _path(_mesh("x"), _mesh("y"))]
    assert steps == [("xy", "xy", "x"), ("xy", "xy", "y"), ("y", "xy", "y"), ("y", "y", "y")]


def test_filters_lead_to_clusters_as_routes_do():
    """A forward of TCP turns from x to y only when y is there, and x goes after that."""

    def mesh(name):
        leads = resource(ECDS, "f", name, refers=[(CDS, name)])
        return snapshot(cluster(name), resource(EDS, name), leads)

    steps = _path(mesh("x"), mesh("y"))
    assert [(*step.resources(CDS), step.get(ECDS, "f").body.decode()) for step in steps] == [
        ("x", "y", "f=x"),
        ("x", "y", "f=y"),
        ("y", "f=y"),
        ("y", "f=y"),
    ]


def test_a_change_of_weight_is_one_step():
    """Only the route changes, so there is nothing to wait for."""
    before = _mesh("x", "y", to=("x", "y"))
    assert len(_path(before, _mesh("x", "y", to=("x", "x", "y")))) == 1


def test_a_change_of_endpoints_is_one_step():
    """Leaves wait for nobody."""
    parts = [cluster("x"), route("r", "x")]
    before = snapshot(*parts, resource(EDS, "x"))
    assert len(_path(before, snapshot(*parts, resource(EDS, "x", "2")))) == 1


def test_additions_are_two_steps_and_removals_too():
    """What is added comes before its users, what is removed goes after them."""
    small, large = _mesh("x"), _mesh("x", "y")
    assert [_shape(step) for step in _path(small, large)] == [
        ("xy", "xy", "x"),
        ("xy", "xy", "x+y"),
    ]
    assert [_shape(step) for step in _path(large, small)] == [
        ("xy", "xy", "x"),
        ("x", "xy", "x"),
        ("x", "x", "x"),
    ]


def test_a_changed_cluster_comes_before_the_routes():
    """It warms while the old routes lead to it still."""
    before, after = _mesh("x"), _mesh("x", to=("x", "x"), content="2")
    first, last = _path(before, after)
    assert first.get(CDS, "x") is after.get(CDS, "x")
    assert first.get(RDS, "r") is before.get(RDS, "r")
    assert last is after


def test_a_newer_target_starts_from_the_step_that_was_reached():
    """Clusters that routes on their way may lead to stay until the routes have moved on."""
    step = transition.next_step(_mesh("x"), _mesh("y"))
    shapes = [_shape(each) for each in _path(step, _mesh("z"))]
    assert shapes[:2] == [("xyz", "xyz", "x"), ("xyz", "xyz", "z")]
    assert shapes[-1] == ("z", "z", "z")


def test_the_way_is_worked_out_once_for_each_pair():
    """Whoever goes it gets the same value."""
    before, after = _mesh("x"), _mesh("y")
    assert transition.next_step(before, after) is transition.next_step(before, after)


def test_layers_that_snapshots_share_are_mixed_once():
    """A thousand proxies with one outbound layer mix it once."""
    shared = [resources.Layer.of([cluster(name), route("r", name)]) for name in "xy"]
    own = [resources.Layer.of([resource(LDS, str(number))]) for number in range(2)]
    steps = [
        transition.next_step(
            resources.Snapshot.of([shared[0], each]), resources.Snapshot.of([shared[1], each])
        )
        for each in own
    ]
    assert steps[0].layers[0] is steps[1].layers[0]
    assert [step.layers[1] for step in steps] == own


@pytest.mark.parametrize("swap", [False, True])
def test_a_resource_may_move_to_another_layer(swap):
    """Its two versions meet in one place, the newer one first."""
    own, other = resources.Layer.of([cluster("x")]), resources.Layer.of([route("r", "x")])
    before = resources.Snapshot.of([own, other])
    moved = resources.Layer.of([cluster("x", "2"), cluster("y"), route("r", "y")])
    after = resources.Snapshot.of([resources.EMPTY_LAYER, moved] if swap else [moved])
    steps = _path(before, after)
    assert _shape(steps[0])[0] == "xy"
    assert steps[0].get(CDS, "x").version == after.get(CDS, "x").version
    assert steps[-1] is after


def test_targets_are_not_kept_alive_by_where_they_were_aimed_at_from():
    """A client that stays behind must not collect every target there ever was."""
    start = _mesh("x")
    ends = [_mesh("x", to=("x", "x")), _mesh("y")]
    for end in ends:
        _path(start, end)
    gone = [weakref.ref(end) for end in ends]
    ends.clear()
    del end
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
