# SPDX-License-Identifier: Apache-2.0
"""What the conformance harness does not ask, over the same real streams.

Refusals, stale nonces, clients that come back, the explicit wildcard, and the order of types.
"""

import pytest

from pilothouse.xds import types

CDS, EDS, LDS, RDS = (
    kind.type_url for kind in (types.CLUSTER, types.ENDPOINT, types.LISTENER, types.ROUTE)
)
WHOLE_SETS = pytest.mark.parametrize("kind", [CDS, LDS], ids=["CDS", "LDS"])
BY_NAME = pytest.mark.parametrize("kind", [RDS, EDS], ids=["RDS", "EDS"])
ALL = pytest.mark.parametrize("kind", [CDS, LDS, RDS, EDS], ids=["CDS", "LDS", "RDS", "EDS"])
WAYS = [True, False]
WAY_NAMES = ["aggregated", "separate"]


@pytest.fixture(params=WAYS, ids=WAY_NAMES)
def sotw(setup, request):
    return setup.sotw(aggregated=request.param)


@pytest.fixture(params=WAYS, ids=WAY_NAMES)
def delta(setup, request):
    return setup.delta(aggregated=request.param)


@pytest.fixture(params=["sotw", "delta"])
def client(setup, request):
    """Of either variant, on an aggregated stream."""
    return getattr(setup, request.param)(aggregated=True)


@ALL
async def test_p14_what_is_refused_is_not_said_again(setup, client, kind):
    """Only the next change is."""
    setup.refusals = ["no"]
    await setup.adapter.set_state("1", {kind: "AB"})
    await client.subscribe(kind, "A", "B")
    await client.read(kind)
    await setup.adapter.update(kind, "A", "2")
    refused = await client.read(kind, refuse="no")
    assert "A" in refused.names
    await setup.adapter.update(kind, "A", "3")
    accepted = await client.read(kind)
    assert (accepted.version, "A" in accepted.names) == ("3", True)
    assert accepted.nonce != refused.nonce


@ALL
async def test_p10_a_stale_nonce_gets_no_answer(setup, sotw, kind):
    """State of the world: nor are its names taken, for a newer request is on its way."""
    await setup.adapter.set_state("1", {kind: "AB"})
    await sotw.subscribe(kind, "A")
    first = await sotw.read(kind)
    await setup.adapter.update(kind, "A", "2")
    await sotw.read(kind)
    await sotw.subscribe(kind, "A", "B", nonce=first.nonce)


@WHOLE_SETS
async def test_p43_a_client_that_has_everything_gets_nothing(setup, sotw, kind):
    """State of the world: the version of an earlier stream says so; a change comes as ever."""
    await setup.adapter.set_state("1", {kind: "AB"})
    await sotw.subscribe(kind, version="1")
    await setup.adapter.update(kind, "A", "2")
    reply = await sotw.read(kind)
    assert (reply.names, reply.version) == ({"A", "B"}, "2")


@BY_NAME
async def test_p43_names_are_answered_again_after_a_reconnect(setup, sotw, kind):
    """State of the world: they may be new to a client that says the version it had."""
    await setup.adapter.set_state("1", {kind: "AB"})
    await sotw.subscribe(kind, "A", "B", version="1")
    assert (await sotw.read(kind)).names == {"A", "B"}


@WHOLE_SETS
async def test_p44_a_client_that_comes_back_gets_the_difference(setup, delta, kind):
    """Delta: what changed, and what is gone; equal versions are not sent."""
    await setup.adapter.set_state("1", {kind: "ABC"})
    await setup.adapter.update(kind, "B", "2")
    await delta.subscribe(kind, held={"A": "1", "B": "1", "GONE": "1"})
    reply = await delta.read(kind)
    if kind == CDS and not reply.removed:
        # Clusters go after whoever used them has been asked for.
        assert (await delta.read(kind)).removed == {"GONE"}
    else:
        assert reply.removed == {"GONE"}
    assert reply.names == {"B", "C"}


@WHOLE_SETS
async def test_p22_p23_the_wildcard_by_name(setup, client, kind):
    """It gives everything, beside a name that nobody has."""
    await setup.adapter.set_state("1", {kind: "AB"})
    await client.subscribe(kind, "*", "Z")
    reply = await client.read(kind)
    assert (reply.names, reply.missing) == ({"A", "B"}, {"Z"})
    await setup.adapter.add(kind, "Z", "2")
    assert "Z" in (await client.read(kind)).names


@BY_NAME
async def test_p29_nothing_is_asked_for_by_an_empty_list(setup, client, kind):
    """Else one tenant's routes would leak to another."""
    await setup.adapter.set_state("1", {kind: "AB"})
    await client.subscribe(kind)
    await setup.adapter.update(kind, "A", "2")


async def test_p49_types_come_in_order(setup, client):
    """Clusters, endpoints, listeners, routes, however they were changed."""
    everything = dict.fromkeys((RDS, LDS, EDS, CDS), "A")
    await client.subscribe(CDS)
    await client.subscribe(LDS)
    await client.subscribe(EDS, "A")
    await client.subscribe(RDS, "A")
    for _ in everything:
        assert (await client.read_any()).names == frozenset()
    await setup.adapter.set_state("1", everything)
    seen = [(await client.read_any()).type_url for _ in everything]
    assert seen == [CDS, EDS, LDS, RDS]
