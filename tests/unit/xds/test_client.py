# SPDX-License-Identifier: Apache-2.0
"""`DeltaClient` against `DeltaStream`: two halves of one protocol, over streams that break."""

import pytest

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import client, delta, resources, streams, types
from tests.support.xds_peer import body, resource, snapshot

RULE = types.ROUTE_RULE.type_url
GATEWAY = types.MESH_GATEWAY.type_url
STATUS = types.OBJECT_STATUS.type_url


def _client(accept=None, **subscriptions):
    kinds = {"rule": RULE, "gateway": GATEWAY, "status": STATUS}
    return client.DeltaClient(
        node=base_pb2.Node(id="source~ingress"),
        subscriptions={kinds[kind]: names for kind, names in subscriptions.items()},
        accept=accept,
    )


class Line:
    """A stream between the two, which carries everything at once."""

    def __init__(self, far: client.DeltaClient, target: resources.Snapshot | None) -> None:
        self.far, self.server = far, delta.DeltaStream()
        if target is not None:
            self.server.update(target)
        self.events: list[streams.Event] = []
        self.updates: list[client.ClientUpdate] = []
        self.send(far.connect())

    def send(self, requests):
        for request in requests:
            self.events += self.server.receive(request)
        self.carry()

    def carry(self):
        while (response := self.server.poll()) is not None:
            update = self.far.receive(response.body)
            self.updates.append(update)
            for request in update.requests:
                self.events += self.server.receive(request)

    def update(self, target):
        self.server.update(target)
        self.carry()


def _held(far, kind=RULE):
    return {name: one.body for name, one in far.resources(kind).items()}


def test_everything_arrives_and_is_acknowledged():
    """Both types, and what is no longer there goes."""
    far = _client(rule=None, gateway=None)
    assert not far.synced
    line = Line(far, snapshot(resource(RULE, "a"), resource(RULE, "b"), resource(GATEWAY, "g")))
    assert far.synced
    assert line.server.in_sync
    assert _held(far) == {"a": body("a"), "b": body("b")}
    assert _held(far, GATEWAY) == {"g": body("g")}
    line.update(snapshot(resource(RULE, "b", "2"), resource(GATEWAY, "g")))
    assert _held(far) == {"b": body("b", "2")}
    assert [one.name for one in line.updates[-1].changed] == ["b"]
    assert line.updates[-1].removed == ((RULE, "a"),)


def test_nothing_is_an_answer_too():
    """A source that has nothing to say is in sync all the same."""
    far = _client(rule=None)
    Line(far, snapshot())
    assert far.synced


def test_only_the_difference_travels_after_a_disconnect():
    """What changed meanwhile is sent, what is gone is named, the rest stays."""
    far = _client(rule=None, gateway=None)
    Line(far, snapshot(*(resource(RULE, name) for name in "abc"), resource(GATEWAY, "g")))
    assert _held(far).keys() == {"a", "b", "c"}
    line = Line(
        far, snapshot(resource(RULE, "a"), resource(RULE, "b", "2"), resource(GATEWAY, "g"))
    )
    assert len(line.updates) == 1
    assert [one.name for one in line.updates[0].changed] == ["b"]
    assert line.updates[0].removed == ((RULE, "c"),)
    assert line.server.in_sync
    again = Line(far, line.server.target)
    assert again.updates == []
    assert again.server.in_sync
    assert far.synced


def test_a_stream_that_ends_before_the_answer_loses_nothing():
    """The next one begins where the first did."""
    far = _client(rule=None)
    for request in far.connect():
        delta.DeltaStream().receive(request)
    Line(far, snapshot(resource(RULE, "a")))
    assert _held(far) == {"a": body("a")}


def test_a_stream_that_ends_before_the_acknowledgement_sends_nothing_twice():
    """The client says what it holds, and that is what it took."""
    far = _client(rule=None)
    server = delta.DeltaStream()
    server.update(snapshot(resource(RULE, "a")))
    (request,) = far.connect()
    server.receive(request)
    far.receive(server.poll().body)
    assert Line(far, snapshot(resource(RULE, "a"))).updates == []


def test_names_are_answered_again_after_a_disconnect_without_news():
    """They are resent, as Envoy needs it, and our client sees that nothing changed."""
    far = _client(status=frozenset({"a"}))
    Line(far, snapshot(resource(STATUS, "a"), resource(STATUS, "b")))
    assert _held(far, STATUS) == {"a": body("a")}
    line = Line(far, snapshot(resource(STATUS, "a")))
    assert [update.changed for update in line.updates] == [()]


def test_a_bad_resource_is_refused_and_its_neighbours_are_taken():
    """Its last good version stays until a good one comes."""
    far = _client(lambda one: "bad" if one.body.endswith(b"bad") else None, rule=None)
    line = Line(far, snapshot(resource(RULE, "a"), resource(RULE, "b")))
    line.update(snapshot(resource(RULE, "a", "bad"), resource(RULE, "b", "2")))
    assert _held(far) == {"a": body("a"), "b": body("b", "2")}
    assert line.updates[-1].refused == ("a: bad",)
    assert isinstance(line.events[-1], streams.Nacked)
    assert line.events[-1].message == "a: bad"
    line.update(snapshot(resource(RULE, "a"), resource(RULE, "b")))
    assert _held(far) == {"a": body("a"), "b": body("b")}
    assert line.server.in_sync


def test_a_resource_of_another_type_is_refused():
    """A response's type is that of all it holds."""
    message = discovery_pb2.DeltaDiscoveryResponse(type_url=RULE, nonce="n")
    message.resources.add(name="a", version="1").resource.type_url = GATEWAY
    far = _client(rule=None)
    update = far.receive(message.SerializeToString())
    assert len(update.refused) == 1
    assert _held(far) == {}


@pytest.mark.parametrize(
    "response",
    [b"\xff", discovery_pb2.DeltaDiscoveryResponse(type_url=GATEWAY).SerializeToString()],
)
def test_what_cannot_be_understood_is_an_error(response):
    """Such a stream is of no use any more."""
    with pytest.raises(ValueError, match=r"DeltaDiscoveryResponse|not asked for"):
        _client(rule=None).receive(response)


def test_names_can_change_on_an_open_stream():
    """From none to some, to others, to everything, and back to none."""
    everything = snapshot(*(resource(STATUS, name) for name in "abc"))
    far = _client(rule=None, status=frozenset())
    line = Line(far, everything)
    assert far.synced
    assert _held(far, STATUS) == {}
    for names in ("a", "bc"):
        line.send(far.subscribe(STATUS, frozenset(names)))
        assert "".join(_held(far, STATUS)) == names
    assert far.subscribe(STATUS, frozenset("cb")) == ()
    line.send(far.subscribe(STATUS, None))
    assert "".join(_held(far, STATUS)) == "abc"
    line.send(far.subscribe(STATUS, frozenset("a")))
    assert "".join(_held(far, STATUS)) == "a"
    line.send(far.subscribe(STATUS, frozenset()))
    line.update(snapshot(*(resource(STATUS, name, "2") for name in "abc")))
    assert _held(far, STATUS) == {}
    assert line.server.in_sync


def test_the_first_request_of_every_stream_says_who_asks():
    """Whichever it is, and no other."""
    far = _client(rule=None, status=frozenset())
    (request,) = far.connect()
    assert discovery_pb2.DeltaDiscoveryRequest.FromString(request).node.id == "source~ingress"
    (request,) = far.subscribe(STATUS, frozenset("a"))
    assert not discovery_pb2.DeltaDiscoveryRequest.FromString(request).HasField("node")
    alone = _client(status=frozenset())
    assert alone.connect() == ()
    (request,) = alone.subscribe(STATUS, frozenset("a"))
    assert discovery_pb2.DeltaDiscoveryRequest.FromString(request).HasField("node")


def test_a_name_that_was_dropped_on_the_way_is_not_kept():
    """What crosses the unsubscription is ignored."""
    far = _client(status=frozenset("ab"))
    server = delta.DeltaStream()
    server.update(snapshot(resource(STATUS, "a"), resource(STATUS, "b")))
    (request,) = far.connect()
    server.receive(request)
    response = server.poll()
    far.subscribe(STATUS, frozenset("b"))
    far.receive(response.body)
    assert list(_held(far, STATUS)) == ["b"]


def test_metadata_travels_beside_the_body():
    """For example the trace of the change."""
    metadata = base_pb2.Metadata()
    metadata.filter_metadata["trace"]["id"] = "1"
    encoded = metadata.SerializeToString(deterministic=True)
    far = _client(rule=None)
    Line(far, snapshot(resources.Resource.of(RULE, "a", b"body", metadata=encoded)))
    assert far.resources(RULE)["a"].metadata == encoded
