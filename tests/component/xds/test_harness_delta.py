# SPDX-License-Identifier: Apache-2.0
"""The cases of the xDS conformance harness for delta, over real streams.

Every case runs on one aggregated stream and on streams of one type. After each one nothing more
must come, and there must have been more requests than responses. The number in a name is that of
the scenario.
"""

import pytest

from pilothouse.xds import types

CDS, EDS, LDS, RDS = (
    kind.type_url for kind in (types.CLUSTER, types.ENDPOINT, types.LISTENER, types.ROUTE)
)
ALL = pytest.mark.parametrize("kind", [CDS, LDS, RDS, EDS], ids=["CDS", "LDS", "RDS", "EDS"])


@pytest.fixture(params=[True, False], ids=["aggregated", "separate"])
def client(setup, request):
    return setup.delta(aggregated=request.param)


async def _gets(client, kind, names, version):
    reply = await client.read(kind)
    assert (reply.names, reply.version) == (frozenset(names), version)
    assert reply.removed <= reply.missing
    return reply


@pytest.mark.parametrize(
    ("kind", "held", "wanted"), [(LDS, "GBLD", "LG"), (RDS, "ABCD", "BD")], ids=["LDS", "RDS"]
)
async def test_4_names_give_those_names(setup, client, kind, held, wanted):
    """What was not asked for does not come."""
    await setup.adapter.set_state("1", {kind: held})
    await client.subscribe(kind, *wanted)
    await _gets(client, kind, wanted, "1")


@ALL
async def test_13_one_name_after_the_other(setup, client, kind):
    """The second subscription gets the second resource only."""
    await setup.adapter.set_state("1", {kind: "ABC"})
    await client.subscribe(kind, "A")
    await _gets(client, kind, "A", "1")
    await client.subscribe(kind, "B")
    await _gets(client, kind, "B", "1")


@ALL
async def test_14_an_update_gives_what_changed(setup, client, kind):
    """At a version and with a nonce that no other resource came with."""
    await setup.adapter.set_state("1", {kind: "ABC"})
    await client.subscribe(kind, *"ABC")
    first = await _gets(client, kind, "ABC", "1")
    await setup.adapter.update(kind, "A", "2")
    second = await _gets(client, kind, "A", "2")
    assert first.nonce != second.nonce
    assert (set(first.versions.values()), second.versions) == ({"1"}, {"A": "2"})


@ALL
async def test_15_a_missing_name_comes_when_it_exists(setup, client, kind):
    """Also at the version string that the others have."""
    await setup.adapter.set_state("1", {kind: "A"})
    await client.subscribe(kind, "A", "B")
    first = await _gets(client, kind, "A", "1")
    assert first.removed == first.missing == {"B"}
    await setup.adapter.add(kind, "B", "1")
    second = await _gets(client, kind, "B", "1")
    assert first.nonce != second.nonce


@ALL
async def test_16_a_removed_resource_is_named_and_may_come_back(setup, client, kind):
    """Among the removed ones first, then at the new version."""
    await setup.adapter.set_state("1", {kind: "AB"})
    await client.subscribe(kind, "A", "B")
    first = await _gets(client, kind, "AB", "1")
    await setup.adapter.remove(kind, "B")
    gone = await client.read(kind)
    assert (gone.names, gone.removed) == (frozenset(), {"B"})
    await setup.adapter.add(kind, "B", "2")
    back = await _gets(client, kind, "B", "2")
    assert len({first.nonce, gone.nonce, back.nonce}) == 3
    assert back.versions == {"B": "2"}


@ALL
async def test_17_less_and_less(setup, client, kind):
    """Updates of what was dropped do not come."""
    await setup.adapter.set_state("1", {kind: "AB"})
    await client.subscribe(kind, "A", "B")
    await _gets(client, kind, "AB", "1")
    await client.unsubscribe(kind, "B")
    await setup.adapter.update(kind, "B", "2")
    await client.unsubscribe(kind, "A")
    await setup.adapter.update(kind, "A", "2")


@pytest.mark.parametrize(
    ("kind", "other"),
    [(CDS, LDS), (LDS, CDS), (RDS, EDS), (EDS, RDS)],
    ids=["CDS+LDS", "LDS+CDS", "RDS+EDS", "EDS+RDS"],
)
async def test_18_two_types_on_one_stream(setup, kind, other):
    """Each is answered by itself, and moves by itself."""
    client = setup.delta(aggregated=True)
    await setup.adapter.set_state("1", {kind: "AB", other: "AB"})
    await client.subscribe(kind, "A", "B")
    await _gets(client, kind, "AB", "1")
    await client.subscribe(other, "A", "B")
    await _gets(client, other, "AB", "1")
    await setup.adapter.update(kind, "A", "2")
    await _gets(client, kind, "A", "2")
    await setup.adapter.update(other, "B", "3")
    await _gets(client, other, "B", "3")
