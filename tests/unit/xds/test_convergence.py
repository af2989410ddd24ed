# SPDX-License-Identifier: Apache-2.0
"""Whatever changes and however slow the answers, every client ends with the last snapshot."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import xds_envoy, xds_peer
from tests.support.xds_peer import CDS, EDS, LDS, RDS, cluster, resource, snapshot

VARIANTS = ("sotw", "delta")
CLUSTERS = "abc"
ROUTES = ("r", "s")


@st.composite
def snapshots(draw, *, bad=False):
    """A consistent snapshot: routes lead to clusters, listeners to routes, clusters to endpoints.

    With ``bad``, one resource may be one that the client refuses.
    """
    names = draw(st.sets(st.sampled_from(CLUSTERS)))
    version = st.sampled_from("12")
    parts = [cluster(name, draw(version)) for name in sorted(names)]
    parts += [resource(EDS, name, draw(version)) for name in sorted(names)]
    routes = draw(st.sets(st.sampled_from(ROUTES))) if names else set()
    for name in sorted(routes):
        to = draw(st.sets(st.sampled_from(sorted(names)), min_size=1))
        parts.append(resource(RDS, name, "+".join(sorted(to)) + "@" + draw(version)))
    if routes:
        content = "+".join(sorted(routes)) + "@" + draw(version)
        parts.append(resource(LDS, "l", content))
    if bad and parts and draw(st.booleans()):
        spoilt = draw(st.sampled_from(range(len(parts))))
        one = parts[spoilt]
        parts[spoilt] = resource(
            one.type_url, one.name, one.body.decode().partition("=")[2].partition("@")[0] + "@bad"
        )
    return snapshot(*(_with_references(one) for one in parts))


def _with_references(one):
    """The references that the translator would have given."""
    targets = {CDS: lambda: {one.name}, EDS: set}.get(
        one.type_url, lambda: xds_envoy.references(one.body)
    )()
    kind = {CDS: EDS, LDS: RDS, RDS: CDS}.get(one.type_url, "")
    content = one.body.decode().partition("=")[2]
    refers = sorted((kind, name) for name in targets)
    return resource(one.type_url, one.name, content, refers=refers)


def _ends_with(envoy, target):
    """The client holds what the target has, as far as it refers to it."""
    envoy.run()
    assert envoy.peer.stream.in_sync
    assert envoy.warm
    for kind in (CDS, LDS):
        assert envoy.held[kind] == _bodies(target, kind)
    assert envoy.held[EDS] == _bodies(target, EDS)
    assert envoy.held[RDS] == _bodies(target, RDS)


def _bodies(view, kind):
    return {name: one.body for name, one in view.resources(kind).items()}


def _act(envoy, plan):
    """Carry out a plan: snapshots to aim at between messages that arrive one by one, or all."""
    for step in plan:
        if isinstance(step, str):
            getattr(envoy, step)()
        else:
            envoy.update(step)


def plans(*, bad=False, reconnects=False):
    """Snapshots mixed with messages on their way."""
    moves = st.sampled_from(["write", "read", "send", "write", "read", "send", "run"])
    steps = [moves, moves, snapshots(bad=bad)]
    if reconnects:
        steps.append(st.just("connect"))
    return st.lists(st.one_of(*steps), max_size=40)


SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("variant", VARIANTS)
@SETTINGS
@given(plan=plans(), last=snapshots())
def test_every_client_ends_with_the_last_snapshot_and_never_complains(variant, plan, last):
    """Any changes, any delays: no reference leads nowhere on the way, and nothing is left over."""
    envoy = xds_envoy.Envoy(variant)
    _act(envoy, plan)
    envoy.update(last)
    _ends_with(envoy, last)
    assert envoy.complaints == []


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("applies_rest", [True, False])
@SETTINGS
@given(first=snapshots(), plan=plans(bad=True), last=snapshots())
def test_refusals_on_the_way_leave_nothing_behind(variant, applies_rest, first, plan, last):
    """Whether the client applies the rest of what it refuses, or nothing of it."""
    envoy = xds_envoy.Envoy(variant, applies_rest=applies_rest)
    envoy.update(first)
    envoy.run()
    _act(envoy, plan)
    envoy.update(last)
    _ends_with(envoy, last)
    assert envoy.complaints == []


@pytest.mark.parametrize("variant", VARIANTS)
@SETTINGS
@given(plan=plans(bad=True, reconnects=True), last=snapshots())
def test_streams_that_break_leave_nothing_behind(variant, plan, last):
    """A new stream begins with what the client holds."""
    envoy = xds_envoy.Envoy(variant)
    _act(envoy, plan)
    envoy.update(last)
    _ends_with(envoy, last)


@SETTINGS
@given(plan=plans(reconnects=True), last=snapshots())
def test_routes_lead_somewhere_after_a_reconnect_too(plan, last):
    """Delta, where a client says what it holds; in state of the world it cannot."""
    envoy = xds_envoy.Envoy("delta")
    _act(envoy, plan)
    envoy.update(last)
    _ends_with(envoy, last)
    assert [each for each in envoy.complaints if "leads to" in each] == []


@SETTINGS
@given(plan=plans(), last=snapshots())
def test_both_variants_end_alike(plan, last):
    """State of the world and delta hold the same resources in the end."""
    clients = [xds_envoy.Envoy(variant) for variant in VARIANTS]
    for envoy in clients:
        _act(envoy, plan)
        envoy.update(last)
        envoy.run()
    assert clients[0].held == clients[1].held


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_client_that_sees_a_reference_lead_nowhere_would_complain(variant):
    """The check itself: a snapshot that is not consistent is noticed."""
    envoy = xds_envoy.Envoy(variant)
    envoy.update(snapshot(resource(LDS, "l", "r"), xds_peer.route("r", "a")))
    envoy.run()
    assert envoy.complaints
