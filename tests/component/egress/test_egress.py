# SPDX-License-Identifier: Apache-2.0
"""The egress program, with discovery played by the test on real sockets."""

import contextlib
import socket

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from pilothouse.adapters.rpc import serving
from pilothouse.api.config.v1alpha1 import external_service_pb2
from pilothouse.api.status.v1alpha1 import status_pb2
from pilothouse.config import codec, objects, schema, status
from pilothouse.model import keys
from pilothouse.xds import types
from tests.support import config_streams, programs
from tests.support.agent import free_port
from tests.support.otlp import otlp_receiver
from tests.support.waiting import eventually

GATEWAY = "MeshGateway/pilothouse-system/egress"
RULES = ["RouteRule/default/egress-partner", "RouteRule/default/mesh-egress-partner"]
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACE = f"00-{TRACE_ID}-b7ad6b7169203331-03"


def external(name="partner", *, host="api.example.com", ports=(80,), through=True, generation=1):
    spec = external_service_pb2.ExternalServiceSpec(hosts=[host], through_egress_gateway=through)
    for port in ports:
        spec.ports.add(number=port)
    key = keys.ObjectKey("ExternalService", "default", name)
    return codec.make(key, spec, source="files", generation=generation)


def local(port):
    return serving.Address("127.0.0.1", port)


@contextlib.asynccontextmanager
async def egress(folder, discovery, *flags, grpc_port=0, environment=None):
    fixed = ("--discovery-address", str(discovery), "--http-address", "127.0.0.1:0")
    async with programs.run(
        "pilothouse_egress",
        *(*fixed, "--grpc-address", f"127.0.0.1:{grpc_port}", *flags),
        folder=folder,
        environment=environment,
    ) as program:
        yield program


async def grpc_address(program):
    return serving.Address.parse((await program.logged("serving"))["grpc"])


async def test_external_service_becomes_routes_and_changes_follow(tmp_path):
    """What discovery holds is derived and published; additions, changes and removals follow."""
    discovery = config_streams.Source()
    discovery.put(external())
    async with (
        config_streams.serve(discovery) as address,
        egress(tmp_path, address) as program,
        config_streams.read(await grpc_address(program)) as reader,
    ):
        await eventually(lambda: reader.names == [GATEWAY, *RULES])
        await program.ready()
        discovery.put(external(host="other.example.com", generation=2))
        await eventually(lambda: reader.get(RULES[0]).spec.hosts == ["other.example.com"])
        discovery.remove("ExternalService/default/partner")
        await eventually(lambda: reader.names == [GATEWAY])
        assert discovery.nacks() == []


async def test_any_start_order_and_discovery_may_go_away(tmp_path):
    """Egress waits for discovery, never calls "unknown" empty, and keeps what it has after."""
    port = free_port()
    async with egress(tmp_path, local(port)) as program:
        async with config_streams.read(await grpc_address(program)) as reader:
            code, body = await program.get("/readyz")
            assert code == 503
            assert [check["ok"] for check in body["checks"]] == [False, False]
            assert not reader.client.current().synced
            discovery = config_streams.Source()
            discovery.put(external())
            async with config_streams.serve(discovery, local(port)):
                await eventually(lambda: reader.names == [GATEWAY, *RULES])
                await program.ready()
            await program.logged("not connected")
            await program.ready()
            assert reader.names == [GATEWAY, *RULES]
        async with config_streams.read(await grpc_address(program)) as late:
            await eventually(lambda: late.names == [GATEWAY, *RULES])


async def test_discovery_that_restarts_unchanged_moves_nothing(tmp_path):
    """Discovery comes back with what it had: it sends no object, and egress publishes none."""
    port = free_port()
    async with (
        egress(tmp_path, local(port)) as program,
        config_streams.read(await grpc_address(program)) as reader,
    ):
        for _ in range(2):
            discovery = config_streams.Source()
            discovery.put(external())
            async with config_streams.serve(discovery, local(port)):
                await _in_sync(discovery)
                await eventually(lambda: reader.names == [GATEWAY, *RULES])
        assert sum(resources for _, resources, _ in discovery.sent_sizes) == 0
        assert len(program.log("published")) == 1


async def _in_sync(discovery):
    await eventually(
        lambda: (
            discovery.sessions
            and len(discovery.sessions[0].stream.types()) == 2
            and discovery.sessions[0].stream.in_sync
        )
    )


async def test_egress_that_restarts_unchanged_resends_nothing(tmp_path):
    """A reader that comes back to a new egress with equal content is sent no object."""
    port = free_port()
    discovery = config_streams.Source()
    discovery.put(external())
    async with (
        config_streams.serve(discovery) as address,
        config_streams.read(local(port)) as reader,
    ):
        async with egress(tmp_path, address, grpc_port=port) as first:
            await eventually(lambda: reader.names == [GATEWAY, *RULES])
            assert await first.stop() == 0
        told = len(reader.told)
        async with egress(tmp_path, address, grpc_port=port) as second:
            await eventually(lambda: reader.client.connected)
            await second.ready()
            _, metrics = await second.get("/metrics")
            assert "pilothouse_egress_subscribers 1" in metrics
            assert "pilothouse_egress_resources_sent_total 0" in metrics
            assert len(reader.told) == told


async def test_trace_goes_on_through_egress(tmp_path):
    """The trace of a change at discovery continues in egress, and travels on with the result."""
    discovery = config_streams.Source()
    async with (
        otlp_receiver() as collector,
        config_streams.serve(discovery) as address,
        egress(tmp_path, address, environment=collector.environment()) as program,
        config_streams.read(await grpc_address(program)) as reader,
    ):
        discovery.put(external(), traceparent=TRACE)
        await eventually(lambda: reader.names == [GATEWAY, *RULES])
        (told,) = [each for each in reader.told if RULES[0] in map(str, each.keys)]
        assert told.traceparent.split("-")[1] == TRACE_ID
        spans = await collector.wait(
            lambda spans: (
                {"egress.change", "egress.derive", "egress.publish"}
                <= {span.name for _, span in spans if span.trace_id.hex() == TRACE_ID}
            )
        )
        by_name = {s.name: s for _, s in spans if s.trace_id.hex() == TRACE_ID}
        assert by_name["egress.change"].parent_span_id.hex() == TRACE.split("-")[2]
        assert by_name["egress.publish"].span_id.hex() == told.traceparent.split("-")[2]
        assert {name for name, _ in spans} == {"pilothouse-egress"}


async def test_bad_resource_of_discovery_is_refused_by_name(tmp_path):
    """A resource that cannot be read is named in the NACK, and costs the others nothing."""
    discovery = config_streams.Source()
    discovery.put(external())
    kind = schema.KINDS["ExternalService"].type_url
    discovery.put_raw(codec.Encoded(kind, "ExternalService/default/bad", b"\xff\xff"))
    async with (
        config_streams.serve(discovery) as address,
        egress(tmp_path, address) as program,
        config_streams.read(await grpc_address(program)) as reader,
    ):
        await eventually(discovery.nacks)
        assert discovery.nacks()[0].startswith("ExternalService/default/bad: ")
        await eventually(lambda: reader.names == [GATEWAY, *RULES])


async def test_refusal_by_discovery_is_logged_and_counted(tmp_path):
    """When a subscriber refuses an object, the log names it and the metric counts it."""
    discovery = config_streams.Source()
    discovery.put(external())
    async with config_streams.serve(discovery) as address, egress(tmp_path, address) as program:
        await program.ready()
        target = str(await grpc_address(program))
        async with grpc.aio.insecure_channel(target) as channel:
            call = channel.stream_stream(config_streams.DELTA_PATH)()
            url = types.ROUTE_RULE.type_url
            await call.write(config_streams.request(url))
            response = config_streams.response(await call.read())
            words = f"{RULES[0]}: not that"
            await call.write(config_streams.request(url, nonce=response.nonce, error=words))
            logged = await program.logged("subscriber refused")
            assert (logged["reason"], logged["type"]) == (words, "RouteRule")
            _, metrics = await program.get("/metrics")
            assert "pilothouse_egress_refusals_total 1" in metrics
            call.cancel()


async def test_page_shows_services_with_what_discovery_says(tmp_path):
    """The page joins the service's own condition with the status of what was derived from it."""
    discovery = config_streams.Source()
    discovery.put(external(), external("two-ports", ports=(80, 81)), external("o", through=False))

    def say(name, acked):
        found = [objects.Condition(type="Programmed", status=acked == 2, reason="x")]
        key = keys.ObjectKey(*name.split("/"))
        counts = status_pb2.ProxyCounts(needed=2, acked=acked)
        body = status.object_status(key, found, generation=1, counts=counts)
        url = types.OBJECT_STATUS.type_url
        discovery.put_raw(codec.Encoded(url, name, body.SerializeToString()))

    async with config_streams.serve(discovery) as address, egress(tmp_path, address) as program:
        say(RULES[0], 2)
        say(RULES[1], 1)
        await program.ready()

        async def page():
            _, found = await program.get("/debug/externalservices")
            return {each["object"]: each for each in found}

        async def partly():
            one = (await page())["ExternalService/default/partner"]
            return [each["proxies"]["acked"] for each in one["derived"]] == [2, 1]

        await eventually(partly)
        found = await page()
        assert list(found) == [
            "ExternalService/default/partner",
            "ExternalService/default/two-ports",
        ]
        refused = found["ExternalService/default/two-ports"]
        assert "spec.ports: has 2 entries" in refused["conditions"][0]["message"]
        assert refused["derived"] == []
        assert (await program.logged("external service refused"))["object"] == refused["object"]
        assert not found["ExternalService/default/partner"]["programmed"]
        say(RULES[1], 2)

        async def programmed():
            return (await page())["ExternalService/default/partner"]["programmed"]

        await eventually(programmed)


async def test_health_and_reflection(tmp_path):
    """gRPC health follows readiness, and reflection tells the discovery service."""
    port = free_port()
    async with egress(tmp_path, local(port)) as program:
        target = str(await grpc_address(program))
        async with grpc.aio.insecure_channel(target) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            answer = health_pb2.HealthCheckResponse
            assert (await watch.read()).status == answer.NOT_SERVING
            discovery = config_streams.Source()
            discovery.put(external())
            async with config_streams.serve(discovery, local(port)):
                assert (await watch.read()).status == answer.SERVING
            watch.cancel()
            call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
                iter([reflection_pb2.ServerReflectionRequest(list_services="")])
            )
            listed = (await call.read()).list_services_response.service
            call.cancel()
            assert "envoy.service.discovery.v3.AggregatedDiscoveryService" in {
                each.name for each in listed
            }


@pytest.mark.parametrize("setting", ["--grpc-address", "--http-address"])
async def test_port_in_use_names_address_and_setting(tmp_path, setting):
    """It ends with 1 and says which address is taken and how to change it."""
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        taken = f"127.0.0.1:{busy.getsockname()[1]}"
        async with egress(tmp_path, local(1), setting, taken) as program:
            assert await program.exit() == 1
            assert (await program.logged("cannot run"))["reason"] == (
                f"cannot listen on {taken} ({setting}): the port is in use"
            )


async def test_sigterm_ends_it_within_its_grace(tmp_path):
    """With subscribers and a discovery connected, SIGTERM ends it with 0 and frees its ports."""
    discovery = config_streams.Source()
    discovery.put(external())
    async with (
        config_streams.serve(discovery) as address,
        egress(tmp_path, address) as program,
        config_streams.read(await grpc_address(program)) as reader,
    ):
        await eventually(lambda: reader.names)
        used = await grpc_address(program)
        assert await program.stop(deadline=20) == 0
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind((used.host, used.port))
        await eventually(lambda: not discovery.sessions)
        assert reader.names == [GATEWAY, *RULES]
    errors = [each for each in program.log() if each["level"] in ("error", "critical")]
    assert errors == []


@pytest.mark.parametrize(
    ("flags", "code", "text"),
    [
        (["--help"], 0, "--gateway-service"),
        (["--version"], 0, "pilothouse-egress "),
        (["--gateway-port", "0"], 2, "--gateway-port (or PILOTHOUSE_GATEWAY_PORT)"),
        (["--grpc-address", "15032"], 2, "'15032' is not of the form HOST:PORT"),
    ],
)
async def test_command_line(tmp_path, flags, code, text):
    """--help and --version answer; wrong use ends with 2 and names the setting."""
    async with programs.run("pilothouse_egress", *flags, folder=tmp_path) as program:
        assert await program.exit() == code
        assert text in program.log_path.read_text()
