# SPDX-License-Identifier: Apache-2.0
"""Streams, nodes and type URLs: P1 to P8 of the protocol."""

import pytest

from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import delta, requests, resources, sotw, streams
from tests.support import xds_peer
from tests.support.xds_peer import CDS, EDS, LDS, RDS, body, cluster, resource

VARIANTS = ("sotw", "delta")
REQUESTS = {
    "sotw": (sotw.SotwStream, discovery_pb2.DiscoveryRequest),
    "delta": (delta.DeltaStream, discovery_pb2.DeltaDiscoveryRequest),
}


@pytest.fixture(params=VARIANTS)
def variant(request):
    return request.param


def _receive(variant, stream, **fields):
    node = fields.pop("node_id", None)
    request = REQUESTS[variant][1](**fields)
    if node is not None:
        request.node.id = node
    return stream.receive(request.SerializeToString())


def test_p1_the_node_is_kept_from_the_first_request(variant):
    """Later requests may leave the node out."""
    peer = xds_peer.connect(variant)
    peer.ask(CDS)
    peer.ask(LDS)
    assert peer.stream.node is not None
    assert peer.stream.node.id == xds_peer.NODE


def test_p2_a_first_request_without_a_node_is_an_error(variant):
    """Nobody is served who does not say who it is."""
    stream = REQUESTS[variant][0]()
    with pytest.raises(requests.ProtocolError) as caught:
        _receive(variant, stream, type_url=CDS)
    assert caught.value.code == "INVALID_ARGUMENT"


def test_p2_another_node_later_is_an_error(variant):
    """A stream cannot change hands; saying the same again is fine."""
    stream = REQUESTS[variant][0]()
    _receive(variant, stream, type_url=CDS, node_id="a")
    _receive(variant, stream, type_url=LDS, node_id="a")
    with pytest.raises(requests.ProtocolError) as caught:
        _receive(variant, stream, type_url=EDS, node_id="b")
    assert caught.value.code == "INVALID_ARGUMENT"


def test_p3_an_aggregated_stream_needs_the_type(variant):
    """On ADS an empty type URL says nothing."""
    stream = REQUESTS[variant][0]()
    with pytest.raises(requests.ProtocolError) as caught:
        _receive(variant, stream, node_id="a")
    assert caught.value.code == "INVALID_ARGUMENT"


def test_p3_a_stream_of_one_type_knows_its_type(variant):
    """An empty type URL means the service's; another one is refused."""
    stream = REQUESTS[variant][0](default_type=CDS)
    assert _receive(variant, stream, node_id="a") == (streams.Subscribed(type_url=CDS),)
    with pytest.raises(requests.ProtocolError) as caught:
        _receive(variant, stream, type_url=LDS)
    assert caught.value.code == "INVALID_ARGUMENT"


def test_what_is_no_request_is_an_error(variant):
    """Bytes that cannot be decoded end the stream."""
    with pytest.raises(requests.ProtocolError) as caught:
        REQUESTS[variant][0]().receive(b"\xff\xff")
    assert caught.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize("default_type", [None, CDS])
def test_p4_both_kinds_of_stream_behave_alike(variant, default_type):
    """A stream of one type answers as an aggregated one."""
    peer = xds_peer.connect(variant, default_type=default_type)
    peer.stream.update(xds_peer.snapshot(cluster("a")))
    peer.ask(CDS)
    assert peer.read_one().resources == {"a": body("a")}


def test_p4_types_do_not_share_acknowledgements(variant):
    """A refused route says nothing of clusters."""
    peer = xds_peer.connect(variant)
    peer.stream.update(xds_peer.snapshot(cluster("a"), xds_peer.route("r", "a")))
    peer.ask(CDS)
    peer.ask(RDS, "r")
    clusters, routes = peer.read()
    assert peer.answer(routes, refuse="no") == (
        streams.Nacked(type_url=RDS, nonce=routes.nonce, message="no"),
    )
    assert peer.answer(clusters) == (streams.Acked(type_url=CDS, nonce=clusters.nonce),)
    errors = {status.type_url: status.error for status in peer.stream.types()}
    assert errors == {CDS: "", RDS: "no"}
    assert not peer.stream.in_sync


def test_p5_layers_cannot_bring_one_name_twice():
    """Two resources of one type and name in one response would be refused, so none can be made."""
    layer = resources.Layer.of([cluster("a")])
    with pytest.raises(ValueError, match="a"):
        resources.Snapshot.of([layer, resources.Layer.of([cluster("a", "2")])])
    with pytest.raises(ValueError, match="a"):
        resources.Layer.of([cluster("a"), cluster("a", "2")])


UNKNOWN = "type.googleapis.com/example.Unknown"


def test_p6_an_unknown_type_is_silent_in_state_of_the_world():
    """The stream goes on and the rest is served."""
    peer = xds_peer.connect("sotw")
    peer.stream.update(xds_peer.snapshot(cluster("a")))
    peer.ask(UNKNOWN, "x")
    assert peer.read() == []
    assert peer.stream.in_sync
    peer.ask(CDS)
    assert [reply.type_url for reply in peer.read()] == [CDS]


def test_p6_names_of_an_unknown_type_are_gone_in_delta():
    """The client learns at once that there is no such thing."""
    peer = xds_peer.connect("delta")
    peer.stream.update(xds_peer.snapshot(cluster("a")))
    peer.ask(UNKNOWN, "x")
    assert peer.read_one().removed == ("x",)


@pytest.mark.parametrize("first", [EDS, xds_peer.SDS, LDS])
def test_p7_any_type_may_come_first(variant, first):
    """Each type is answered by itself, whatever was asked before."""
    peer = xds_peer.connect(variant)
    peer.stream.update(xds_peer.snapshot(resource(first, "x")))
    peer.ask(first, "x")
    assert peer.read_one().resources == {"x": body("x")}


def test_p8_two_streams_of_one_node_do_not_meet(variant):
    """A reconnect can overlap the stream that dies."""
    target = xds_peer.snapshot(cluster("a"))
    old, new = xds_peer.connect(variant), xds_peer.connect(variant)
    for peer in (old, new):
        peer.stream.update(target)
        peer.ask(CDS)
    assert len(old.settle()) == 1
    assert old.stream.in_sync
    assert not new.stream.in_sync
    assert len(new.settle()) == 1
