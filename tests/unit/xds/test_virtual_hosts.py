# SPDX-License-Identifier: Apache-2.0
"""Virtual hosts on demand: delta only, by names of the form ROUTE CONFIGURATION/HOST (P57).

Source: https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_conn_man/vhds
"""

import pytest

from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import types
from tests.support import xds_peer
from tests.support.xds_peer import RDS, resource, snapshot

VHDS = types.VIRTUAL_HOST.type_url


@pytest.fixture(params=[None, VHDS], ids=["aggregated", "separate"])
def peer(request):
    made = xds_peer.connect("delta", default_type=request.param)
    made.stream.update(snapshot(resource(VHDS, "r/a"), resource(VHDS, "r/b")))
    return made


def _answer(peer):
    """The only response, acknowledged: what it has, with aliases, and what is gone."""
    response = peer.stream.poll()
    assert response is not None
    message = discovery_pb2.DeltaDiscoveryResponse.FromString(response.body)
    peer.send(VHDS, nonce=message.nonce)
    assert not message.resource_errors
    assert peer.stream.poll() is None
    named = {
        one.name: (tuple(one.aliases), one.resource.value if one.HasField("resource") else None)
        for one in message.resources
    }
    return named, tuple(message.removed_resources)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["r/a"], {"r/a": b"r/a=1"}),
        (["r/nobody"], {"r/nobody": None}),
        (["r/a", "r/nobody", "s/a"], {"r/a": b"r/a=1", "r/nobody": None, "s/a": None}),
        (["r/x/a"], {"r/x/a": None}),
    ],
)
def test_p57_p40_every_name_comes_back_as_an_alias(peer, asked, said):
    """Also that of a host that nobody has: then without a body, so that nobody waits for it."""
    peer.send(VHDS)
    assert peer.stream.poll() is None
    peer.send(VHDS, add=asked)
    named, removed = _answer(peer)
    assert named == {name: ((name,), body) for name, body in said.items()}
    assert removed == ()


def test_p57_a_name_is_answered_whenever_it_is_asked_for(peer):
    """Each request that waits for a host asks anew."""
    peer.send(VHDS, add=["r/nobody"])
    for _ in range(2):
        assert _answer(peer)[0] == {"r/nobody": (("r/nobody",), None)}
        peer.send(VHDS, add=["r/nobody"])
    assert _answer(peer)[0] == {"r/nobody": (("r/nobody",), None)}


def test_p57_a_host_that_comes_and_goes_is_pushed(peer):
    """To who asked for it while nobody had it."""
    peer.send(VHDS, add=["r/c"])
    _answer(peer)
    peer.stream.update(snapshot(resource(VHDS, "r/c")))
    assert _answer(peer) == ({"r/c": (("r/c",), b"r/c=1")}, ())
    peer.stream.update(snapshot())
    assert _answer(peer) == ({}, ("r/c",))


@pytest.mark.parametrize("host", ["r/b", "s/x/a"])
def test_p57_hosts_follow_a_changed_route_configuration(host):
    """It replaced the one they were part of; those of others stay. The last slash divides."""
    name = host.rpartition("/")[0]
    peer = xds_peer.connect("delta")
    parts = [resource(VHDS, "r2/a"), resource(VHDS, host)]
    peer.stream.update(snapshot(resource(RDS, name), *parts))
    peer.ask(RDS, name)
    peer.settle()
    peer.send(VHDS, add=["r2/a", host])
    _answer(peer)
    peer.stream.update(snapshot(resource(RDS, name, "2"), *parts))
    routes = peer.stream.poll()
    assert routes.type_url == RDS
    assert list(_answer(peer)[0]) == [host]


def test_p57_state_of_the_world_has_no_service_of_its_own():
    """On an aggregated stream it is a type as any other by name."""
    peer = xds_peer.connect("sotw")
    peer.stream.update(snapshot(resource(VHDS, "r/a")))
    peer.ask(VHDS)
    assert peer.read() == []
    peer.ask(VHDS, "r/a", "r/nobody")
    reply = peer.read_one()
    assert list(reply.resources) == ["r/a"]
    assert list(reply.errors) == ["r/nobody"]
