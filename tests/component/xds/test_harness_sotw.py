# SPDX-License-Identifier: Apache-2.0
"""The cases of the xDS conformance harness for state of the world, over real streams.

Every case runs on one aggregated stream and on streams of one type. After each one nothing more
must come, and there must have been more requests than responses. The number in a name is that of
the scenario: 1 to 3 wildcard, 4 to 8 named, 9 aggregated, 10 to 12 less than before.
"""

import pytest

from pilothouse.xds import types

CDS, EDS, LDS, RDS = (
    kind.type_url for kind in (types.CLUSTER, types.ENDPOINT, types.LISTENER, types.ROUTE)
)
WHOLE_SETS = pytest.mark.parametrize("kind", [CDS, LDS], ids=["CDS", "LDS"])
BY_NAME = pytest.mark.parametrize("kind", [RDS, EDS], ids=["RDS", "EDS"])
ALL = pytest.mark.parametrize("kind", [CDS, LDS, RDS, EDS], ids=["CDS", "LDS", "RDS", "EDS"])


@pytest.fixture(params=[True, False], ids=["aggregated", "separate"])
def client(setup, request):
    return setup.sotw(aggregated=request.param)


async def _gets(client, kind, names, version):
    reply = await client.read(kind)
    assert (reply.names, reply.version) == (frozenset(names), version)
    return reply


@WHOLE_SETS
async def test_1_the_wildcard_gives_everything(setup, client, kind):
    """An empty list of names gets all resources in one response."""
    await setup.adapter.set_state("1", {kind: "ABC"})
    await client.subscribe(kind)
    await _gets(client, kind, "ABC", "1")


@WHOLE_SETS
async def test_2_an_update_gives_the_wildcard_the_whole_set(setup, client, kind):
    """One resource changes, and the set comes at the new version."""
    await setup.adapter.set_state("1", {kind: "ABC"})
    await client.subscribe(kind)
    await _gets(client, kind, "ABC", "1")
    await setup.adapter.update(kind, "A", "2")
    await _gets(client, kind, "ABC", "2")


@WHOLE_SETS
async def test_3_an_addition_gives_the_wildcard_the_whole_set(setup, client, kind):
    """A new resource comes along with the others."""
    await setup.adapter.set_state("1", {kind: "ABC"})
    await client.subscribe(kind)
    await _gets(client, kind, "ABC", "1")
    await setup.adapter.add(kind, "D", "2")
    await _gets(client, kind, "ABCD", "2")


@pytest.mark.parametrize(
    ("kind", "held", "wanted"), [(LDS, "GBLD", "LG"), (RDS, "ABCD", "BD")], ids=["LDS", "RDS"]
)
async def test_4_names_give_those_names(setup, client, kind, held, wanted):
    """What was not asked for does not come."""
    await setup.adapter.set_state("1", {kind: held})
    await client.subscribe(kind, *wanted)
    await _gets(client, kind, wanted, "1")


@WHOLE_SETS
async def test_5_an_update_gives_all_that_is_subscribed_of_a_whole_set(setup, client, kind):
    """Clusters and listeners: absence would delete."""
    await setup.adapter.set_state("1", {kind: "ABCD"})
    await client.subscribe(kind, "B", "D")
    await _gets(client, kind, "BD", "1")
    await setup.adapter.update(kind, "B", "2")
    await _gets(client, kind, "BD", "2")


@BY_NAME
async def test_6_an_update_gives_what_changed(setup, client, kind):
    """Routes and endpoints: absence says nothing."""
    await setup.adapter.set_state("1", {kind: "ABCD"})
    await client.subscribe(kind, "B", "D")
    await _gets(client, kind, "BD", "1")
    await setup.adapter.update(kind, "B", "2")
    await _gets(client, kind, "B", "2")


@WHOLE_SETS
async def test_7_a_missing_name_of_a_whole_set_comes_when_it_exists(setup, client, kind):
    """With the others that are subscribed."""
    await setup.adapter.set_state("1", {kind: "ABCD"})
    await client.subscribe(kind, "A", "Z")
    assert (await _gets(client, kind, "A", "1")).missing == {"Z"}
    await setup.adapter.add(kind, "Z", "2")
    await _gets(client, kind, "AZ", "2")


@BY_NAME
async def test_8_a_missing_name_comes_when_it_exists(setup, client, kind):
    """Alone."""
    await setup.adapter.set_state("1", {kind: "ABCD"})
    await client.subscribe(kind, "A", "Z")
    assert (await _gets(client, kind, "A", "1")).missing == {"Z"}
    await setup.adapter.add(kind, "Z", "2")
    await _gets(client, kind, "Z", "2")


@pytest.mark.parametrize(("kind", "other"), [(CDS, LDS), (RDS, EDS)], ids=["CDS+LDS", "RDS+EDS"])
async def test_9_two_types_on_one_stream(setup, kind, other):
    """Each is answered by itself, and moves by itself."""
    client = setup.sotw(aggregated=True)
    await setup.adapter.set_state("1", {kind: "ABC", other: "ABC"})
    await client.subscribe(kind, "B")
    await _gets(client, kind, "B", "1")
    await client.subscribe(other, "B")
    await _gets(client, other, "B", "1")
    await setup.adapter.update(kind, "B", "2")
    await _gets(client, kind, "B", "2")


@WHOLE_SETS
async def test_10_fewer_names_of_a_whole_set(setup, client, kind):
    """What is still wanted goes on coming; nothing else comes with it."""
    await setup.adapter.set_state("1", {kind: "FABCD"})
    await client.subscribe(kind, *"CAB")
    await _gets(client, kind, "CAB", "1")
    await client.subscribe(kind, "A", "C")
    await setup.adapter.update(kind, "A", "2")
    await _gets(client, kind, "AC", "2")


@BY_NAME
async def test_11_fewer_names(setup, client, kind):
    """An update of the name that is left comes, and only that."""
    await setup.adapter.set_state("1", {kind: "GBLD"})
    await client.subscribe(kind, "B", "D")
    await _gets(client, kind, "BD", "1")
    await client.subscribe(kind, "B")
    await setup.adapter.update(kind, "D", "2")
    await setup.adapter.update(kind, "B", "3")
    await _gets(client, kind, "B", "3")


@ALL
async def test_12_nothing_any_more(setup, client, kind):
    """A list of one empty name asks for nothing, and nothing comes."""
    await setup.adapter.set_state("1", {kind: "ABCD"})
    await client.subscribe(kind, "A", "B")
    await _gets(client, kind, "AB", "1")
    await client.subscribe(kind, "")
    await setup.adapter.update(kind, "A", "2")
    await setup.adapter.update(kind, "B", "3")
