# SPDX-License-Identifier: Apache-2.0
"""A config source and its readers, over real sockets."""

import grpc.aio
import pytest

from pilothouse.adapters.rpc import backoff, config_source, publisher, serving, trace_metadata
from pilothouse.api.config.v1alpha1 import external_service_pb2, route_rule_pb2
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.api.status.v1alpha1 import status_pb2
from pilothouse.config import codec, objects, schema, status
from pilothouse.model import keys
from pilothouse.xds import streams as xds_streams
from pilothouse.xds import types
from tests.support import config_streams
from tests.support.agent import free_port
from tests.support.waiting import eventually

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03"
OTHER_TRACE = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03"


def external(name, host="api.example.com", **more):
    spec = external_service_pb2.ExternalServiceSpec(hosts=[host])
    spec.ports.add(number=80)
    key = keys.ObjectKey("ExternalService", "default", name)
    return codec.make(key, spec, source="files", **more)


def rule(name):
    spec = route_rule_pb2.RouteRuleSpec()
    return codec.make(keys.ObjectKey("RouteRule", "default", name), spec, source="x")


async def test_reader_holds_what_the_source_publishes():
    """Objects of every kind arrive whole: meta, spec and digest; then the store is synced."""
    source = publisher.ConfigPublisher()
    one = external("a", created=7, generation=3, origins=(keys.ObjectKey("Ingress", "x", "y"),))
    source.publish([rule("r"), one])
    async with config_streams.serve(source) as address, config_streams.read(address) as reader:
        await eventually(lambda: reader.client.current().synced)
        assert reader.names == ["ExternalService/default/a", "RouteRule/default/r"]
        got = reader.get("ExternalService/default/a")
        assert (got.meta, got.spec, got.digest) == (one.meta, one.spec, one.digest)
        assert got.source == "test"
        await eventually(lambda: source.subscribers[0].in_sync)


async def test_changes_and_removals_arrive():
    """A changed object replaces the old one; one that is gone is gone; the rest is not resent."""
    source = publisher.ConfigPublisher()
    source.publish([external("a"), external("b")])
    async with config_streams.serve(source) as address, config_streams.read(address) as reader:
        await eventually(lambda: len(reader.names) == 2)
        kept = reader.get("ExternalService/default/b")
        difference = source.publish([external("b"), external("c")])
        assert [str(key) for key in difference.changed] == ["ExternalService/default/c"]
        assert [str(key) for key in difference.removed] == ["ExternalService/default/a"]
        await eventually(
            lambda: reader.names == ["ExternalService/default/b", "ExternalService/default/c"]
        )
        assert reader.get("ExternalService/default/b") is kept


async def test_equal_set_sends_nothing():
    """Publishing the same content anew, in another trace and order, is no response."""
    source = publisher.ConfigPublisher()
    source.publish([external("a"), external("b")], traceparent=TRACE)
    async with config_streams.serve(source) as address, config_streams.read(address) as reader:
        await eventually(lambda: source.subscribers and source.subscribers[0].in_sync)
        before = source.responses
        assert not source.publish([external("b"), external("a")], traceparent=OTHER_TRACE)
        source.publish([external("a"), external("b"), external("c")], traceparent=OTHER_TRACE)
        await eventually(lambda: len(reader.names) == 3)
        assert source.responses == before + 1
        assert [str(key) for key in reader.told[-1].keys] == ["ExternalService/default/c"]


async def test_readers_wait_until_there_is_a_first_set():
    """Before the first publish a reader is kept waiting: unknown is not empty."""
    source = publisher.ConfigPublisher()
    async with config_streams.serve(source) as address, config_streams.read(address) as reader:
        await eventually(lambda: source.subscribers)
        assert not reader.client.current().synced
        source.publish([])
        await eventually(lambda: reader.client.current().synced)
        assert reader.names == []
        assert [change.keys for change in reader.told] == [()]


async def test_a_removal_has_the_trace_of_the_publish_that_left_it_out():
    """Alone, and beside what changed; what an object came with is over when it goes."""
    source = publisher.ConfigPublisher()
    source.publish([external("a"), external("b")], traceparent=TRACE)
    async with config_streams.serve(source) as address, config_streams.read(address) as reader:
        # Being synced is a change of its own, and it may come after the objects.
        await eventually(lambda: reader.client.current().synced)
        reader.told.clear()
        source.publish([external("b")], traceparent=OTHER_TRACE)
        await eventually(lambda: len(reader.names) == 1)
        assert [change.traceparent for change in reader.told] == [OTHER_TRACE]
        reader.told.clear()
        source.publish([external("c")], traceparent=TRACE)
        await eventually(lambda: reader.names == ["ExternalService/default/c"])
        assert {change.traceparent for change in reader.told} == {TRACE}


async def test_trace_travels_with_the_object_it_changed():
    """Each object's change is told with the trace of the publish that made its content."""
    source = publisher.ConfigPublisher()
    source.publish([external("a")], traceparent=TRACE)
    source.publish([external("a"), external("b")], traceparent=OTHER_TRACE)
    async with config_streams.serve(source) as address, config_streams.read(address) as reader:
        await eventually(lambda: reader.client.current().synced)
        told = {change.traceparent: [str(k) for k in change.keys] for change in reader.told}
        assert told.pop("", []) == []
        assert told == {
            TRACE: ["ExternalService/default/a"],
            OTHER_TRACE: ["ExternalService/default/b"],
        }


async def test_source_that_restarts_unchanged_resends_nothing():
    """A reader that comes back says what it holds, so equal content costs no resource."""
    address = serving.Address("127.0.0.1", free_port())
    first, second = publisher.ConfigPublisher(), publisher.ConfigPublisher()
    for source in (first, second):
        source.publish([external("a"), rule("r")], traceparent=TRACE)
    async with config_streams.read(address) as reader:
        async with config_streams.serve(first, address):
            await eventually(lambda: reader.client.current().synced)
            changes, kept = len(reader.told), reader.get("ExternalService/default/a")
        async with config_streams.serve(second, address):
            await eventually(lambda: second.subscribers and second.subscribers[0].in_sync)
            await eventually(lambda: reader.client.connected)
        assert (first.resources_sent, second.resources_sent) == (2, 0)
        assert len(reader.told) == changes
        assert reader.get("ExternalService/default/a") is kept


async def test_reader_comes_before_the_source_and_survives_it():
    """Any start order works; while the source is away the last good set stays, still synced."""
    address = serving.Address("127.0.0.1", free_port())
    async with config_streams.read(address) as reader:
        await eventually(lambda: reader.client.error)
        assert not reader.client.current().synced
        source = publisher.ConfigPublisher()
        source.publish([external("a")])
        async with config_streams.serve(source, address):
            # Kinds are answered one by one: objects may be there before all of them were.
            await eventually(lambda: reader.client.connected and reader.client.current().synced)
            assert reader.client.error == ""
        await eventually(lambda: not reader.client.connected)
        assert reader.client.current().synced
        assert reader.names == ["ExternalService/default/a"]
        changed = publisher.ConfigPublisher()
        changed.publish([external("b")])
        async with config_streams.serve(changed, address):
            await eventually(lambda: reader.names == ["ExternalService/default/b"])


async def test_aged_connection_is_renewed_and_nothing_resent():
    """A server that ends connections by age is asked again at once, for what changed only."""
    source = publisher.ConfigPublisher()
    source.publish([external("a")])
    options = serving.GrpcOptions(max_connection_age=0.2, max_connection_age_grace=0.05)
    async with (
        config_streams.serve(source, options=options) as address,
        config_streams.read(address) as reader,
    ):
        # A moment may have no connection, or the one that ends beside the one that begins.
        first = await eventually(lambda: source.subscribers and source.subscribers[0].peer)
        await eventually(lambda: any(one.peer != first for one in source.subscribers))
        await eventually(lambda: reader.names)
        source.publish([external("a"), external("b")])
        await eventually(lambda: len(reader.names) == 2)
        assert source.resources_sent == 2


class Liar(config_streams.Source):
    """A source that answers with a type nobody asked for."""

    def opened(self, session):
        super().opened(session)
        session.stream.poll = self._lie
        session.wake.set()

    def _lie(self):
        if self.sent_sizes:
            return None
        body = discovery_pb2.DeltaDiscoveryResponse(type_url="type.googleapis.com/what")
        return xds_streams.Response(
            type_url=body.type_url,
            nonce="1",
            version="1",
            body=body.SerializeToString(),
            resources=0,
        )


async def test_source_that_breaks_the_protocol_is_left_and_tried_again():
    """An answer nobody asked for ends the stream; the reader says why, and connects anew."""
    source = Liar()
    async with config_streams.serve(source) as address, config_streams.read(address) as reader:
        await eventually(lambda: "type.googleapis.com/what" in reader.client.error)
        await eventually(lambda: source.sessions)
        assert not reader.client.current().synced


BROKEN = codec.Encoded(
    schema.KINDS["ExternalService"].type_url, "ExternalService/default/bad", b"\xff\xff"
)
MISNAMED = codec.encode(external("a"))._replace(resource_name="ExternalService/default/bad")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (BROKEN, "2 bytes that are no ExternalService"),
        (MISNAMED, "the resource holds ExternalService/default/a"),
    ],
)
async def test_bad_resource_is_refused_by_name_and_alone(body, reason):
    """A resource that cannot be read is named in the NACK and a problem; the others are taken."""
    source = config_streams.Source()
    async with config_streams.serve(source) as address, config_streams.read(address) as reader:
        source.put(external("good"))
        source.put_raw(body)
        await eventually(source.nacks)
        assert source.nacks()[0].startswith(f"ExternalService/default/bad: {reason}")
        await eventually(lambda: reader.names == ["ExternalService/default/good"])
        (problem,) = reader.client.current().problems
        assert str(problem.key) == "ExternalService/default/bad"
        assert problem.message.startswith(reason)
        assert reader.client.refusals >= 1
        source.put(external("bad"))
        await eventually(lambda: "ExternalService/default/bad" in reader.names)
        assert reader.client.current().problems == ()


async def test_bad_version_keeps_the_last_good_one():
    """An object whose new version cannot be read stays as it was."""
    source = config_streams.Source()
    async with config_streams.serve(source) as address, config_streams.read(address) as reader:
        source.put(external("bad", host="old.example.com"))
        await eventually(lambda: reader.names)
        source.put_raw(BROKEN)
        await eventually(source.nacks)
        assert reader.get("ExternalService/default/bad").spec.hosts == ["old.example.com"]


async def test_publisher_counts_refusals():
    """A subscriber's refusal is seen with its words, and it does not count as holding all."""
    source = publisher.ConfigPublisher()
    source.publish([external("a")])
    async with config_streams.serve(source) as address:
        async with grpc.aio.insecure_channel(str(address)) as channel:
            call = channel.stream_stream(config_streams.DELTA_PATH)()
            await call.write(config_streams.request(types.EXTERNAL_SERVICE.type_url))
            response = config_streams.response(await call.read())
            await call.write(
                config_streams.request(
                    types.EXTERNAL_SERVICE.type_url, nonce=response.nonce, error="a: no"
                )
            )
            await eventually(lambda: source.refusals == 1)
            (subscriber,) = source.subscribers
            assert not subscriber.in_sync
            assert subscriber.errors == {types.EXTERNAL_SERVICE.type_url: "a: no"}
            call.cancel()
        await eventually(lambda: not source.subscribers)


async def test_statuses_are_read_beside_the_objects():
    """ObjectStatus arrives by key, changes and goes, and takes no part in being synced."""
    source = config_streams.Source()
    key = keys.ObjectKey("RouteRule", "default", "r")
    told = []

    def encoded(**counts):
        body = status.object_status(
            key,
            [objects.Condition(type="Accepted", status=True, reason="Accepted")],
            generation=4,
            counts=status_pb2.ProxyCounts(**counts),
        )
        url = types.OBJECT_STATUS.type_url
        return codec.Encoded(url, str(key), body.SerializeToString(deterministic=True))

    async with (
        config_streams.serve(source) as address,
        config_streams.read(address, kinds=["RouteRule"], statuses=True) as reader,
    ):
        reader.client.on_status(told.append)
        source.put_raw(encoded(needed=2))
        await eventually(lambda: key in reader.client.statuses())
        assert reader.client.statuses()[key].proxies.needed == 2
        source.put_raw(encoded(needed=2, acked=2))
        await eventually(lambda: reader.client.statuses()[key].proxies.acked == 2)
        source.remove(str(key))
        await eventually(lambda: key not in reader.client.statuses())
        assert [change.keys for change in told] == [(key,)] * 3
        assert reader.names == []


async def test_published_twice_is_a_mistake_of_the_caller():
    """Two objects of one key cannot be one set."""
    with pytest.raises(ValueError, match="ExternalService/default/a"):
        publisher.ConfigPublisher().publish([external("a"), external("a")])


def test_trace_metadata_is_read_back():
    """What is encoded is decoded; an empty trace is no metadata."""
    assert trace_metadata.decode(trace_metadata.encode(TRACE)) == TRACE
    assert trace_metadata.encode("") == b""


@pytest.mark.parametrize("metadata", [b"", b"\xff", b"\x0a\x00"])
def test_unreadable_metadata_is_no_trace(metadata):
    """A peer's metadata that is none, broken or another's gives no trace and no error."""
    assert trace_metadata.decode(metadata) == ""


def test_backoff_grows_to_its_maximum_and_begins_anew():
    """Each wait lies in the upper half of a step that doubles up to the maximum."""
    delays = backoff.Backoff(initial=0.2, maximum=10)
    waits = [delays.next() for _ in range(9)]
    steps = [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10]
    assert all(step / 2 <= wait <= step for wait, step in zip(waits, steps, strict=True))
    delays.reset()
    assert delays.next() <= 0.2


def test_source_that_is_asked_for_statuses_only_is_synced():
    """No kinds, nothing to wait for."""
    client = config_source.ConfigStreamClient(
        "x", serving.Address("127.0.0.1", 1), node_id="source~1~a.b~c", kinds=(), statuses=True
    )
    assert client.current().synced
