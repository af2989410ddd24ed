# SPDX-License-Identifier: Apache-2.0
"""The ingress program on a folder of manifests, with discovery played by the test."""

import contextlib
import os
import signal
import socket

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pilothouse.adapters.rpc import serving
from pilothouse.api.status.v1alpha1 import status_pb2
from pilothouse.config import codec, objects, status
from pilothouse.xds import types
from tests.support import config_streams, programs
from tests.support.agent import free_port
from tests.support.otlp import otlp_receiver
from tests.support.waiting import eventually

GATEWAY = "MeshGateway/pilothouse-system/ingress"
INGRESS = "Ingress/default/shop"

CLASS = """
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: pilothouse}
spec: {controller: pilothouse.dev/ingress}
---
apiVersion: v1
kind: Service
metadata: {name: frontend}
spec:
  ports: [{name: http, port: 80, targetPort: 8080}]
  selector: {app: frontend}
"""
SHOP = """
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: %(name)s}
spec:
  ingressClassName: pilothouse
  rules:
  - host: %(host)s
    http:
      paths:
      - path: /
        pathType: Prefix
        backend: {service: {name: %(service)s, port: {name: http}}}
"""


def write(folder, name, text):
    """Write a file whole: beside its place, then over it."""
    new = folder / f".{name}.new"
    new.write_text(text)
    new.rename(folder / name)


def shop(name="shop", host="shop.example.com", service="frontend"):
    return SHOP % {"name": name, "host": host, "service": service}


@pytest.fixture
def folder(tmp_path):
    """A folder with a class, a service and an Ingress."""
    made = tmp_path / "config"
    made.mkdir()
    write(made, "class.yaml", CLASS)
    write(made, "shop.yaml", shop())
    return made


@contextlib.asynccontextmanager
async def ingress(folder, *flags, discovery=None, grpc_port=0, environment=None):
    fixed = (
        *("--config", str(folder), "--http-address", "127.0.0.1:0"),
        *("--grpc-address", f"127.0.0.1:{grpc_port}"),
        *("--discovery-address", str(discovery or local(1))),
    )
    async with programs.run(
        "pilothouse_ingress", *fixed, *flags, folder=folder.parent, environment=environment
    ) as program:
        yield program


def local(port):
    return serving.Address("127.0.0.1", port)


async def grpc_address(program):
    return serving.Address.parse((await program.logged("serving"))["grpc"])


def hosts(reader):
    """The hosts of all rules that the reader holds."""
    return sorted(
        host
        for config in reader.client.current().configs.values()
        if config.key.kind == "RouteRule"
        for host in config.spec.hosts
    )


async def test_folder_becomes_a_config_stream_and_changes_follow(folder):
    """Ingresses are derived and published; new, changed and removed ones follow."""
    async with (
        ingress(folder) as program,
        config_streams.read(await grpc_address(program)) as reader,
    ):
        await eventually(lambda: hosts(reader) == ["shop.example.com"])
        await program.ready()
        gateway = reader.get(GATEWAY)
        assert [(one.name, one.port) for one in gateway.spec.listeners] == [("http", 8080)]
        write(folder, "blog.yaml", shop("blog", "blog.example.com"))
        await eventually(lambda: hosts(reader) == ["blog.example.com", "shop.example.com"])
        write(folder, "shop.yaml", shop(host="store.example.com"))
        await eventually(lambda: hosts(reader) == ["blog.example.com", "store.example.com"])
        (folder / "blog.yaml").unlink()
        await eventually(lambda: hosts(reader) == ["store.example.com"])
        for config in reader.client.current().configs.values():
            if config.key.kind == "RouteRule":
                assert [str(key) for key in config.meta.origins] == [INGRESS]


async def test_folder_that_comes_later(tmp_path):
    """Without a folder nothing is published, not even nothing; readers wait until it is there."""
    folder = tmp_path / "config"
    async with (
        ingress(folder) as program,
        config_streams.read(await grpc_address(program)) as reader,
    ):
        code, body = await program.get("/readyz")
        assert code == 503
        assert [check["ok"] for check in body["checks"]] == [False, False]
        assert not reader.client.current().synced
        made = tmp_path / "made"
        made.mkdir()
        write(made, "class.yaml", CLASS)
        write(made, "shop.yaml", shop())
        made.rename(folder)
        await eventually(lambda: hosts(reader) == ["shop.example.com"])
        await program.ready()


async def test_nothing_of_ours_is_an_empty_set(tmp_path):
    """A folder without Ingresses of ours is published as an empty set, and ingress is ready."""
    folder = tmp_path / "config"
    folder.mkdir()
    async with (
        ingress(folder) as program,
        config_streams.read(await grpc_address(program)) as reader,
    ):
        await eventually(lambda: reader.client.current().synced)
        assert reader.names == []
        await program.ready()


async def test_restart_without_a_change_resends_nothing(folder):
    """A reader that comes back to a new ingress with an equal folder is sent no object."""
    port = free_port()
    async with config_streams.read(local(port)) as reader:
        async with ingress(folder, grpc_port=port) as first:
            await eventually(lambda: hosts(reader) == ["shop.example.com"])
            assert await first.stop() == 0
        await eventually(lambda: not reader.client.connected)
        assert hosts(reader) == ["shop.example.com"]
        told = len(reader.told)
        async with ingress(folder, grpc_port=port) as second:
            await eventually(lambda: reader.client.connected)
            _, metrics = await second.get("/metrics")
            assert "pilothouse_ingress_subscribers 1" in metrics
            assert "pilothouse_ingress_resources_sent_total 0" in metrics
            assert len(reader.told) == told


async def test_broken_file_keeps_the_last_good_set_and_is_told(folder):
    """A file that breaks costs nothing that was there; the page names it."""
    async with (
        ingress(folder) as program,
        config_streams.read(await grpc_address(program)) as reader,
    ):
        await eventually(lambda: hosts(reader) == ["shop.example.com"])
        write(folder, "shop.yaml", "a: [")
        write(folder, "blog.yaml", shop("blog", "blog.example.com"))
        await eventually(lambda: hosts(reader) == ["blog.example.com", "shop.example.com"])
        _, problems = await program.get("/debug/problems")
        assert [os.path.basename(each["location"].split(":")[0]) for each in problems] == [  # noqa: PTH119
            "shop.yaml"
        ]


async def test_change_is_one_trace_from_the_file_to_the_reader(folder):
    """A changed file begins a trace; conversion and publishing are in it; it travels on."""
    async with (
        otlp_receiver() as collector,
        ingress(folder, environment=collector.environment()) as program,
        config_streams.read(await grpc_address(program)) as reader,
    ):
        await eventually(lambda: hosts(reader) == ["shop.example.com"])
        before = len(reader.told)
        write(folder, "shop.yaml", shop(host="store.example.com"))
        await eventually(lambda: hosts(reader) == ["store.example.com"])
        (told,) = {each.traceparent for each in reader.told[before:]} - {""}
        trace_id, span_id = told.split("-")[1:3]
        wanted = {"ingress.change", "ingress.convert", "ingress.publish"}
        spans = await collector.wait(
            lambda spans: (
                wanted <= {span.name for _, span in spans if span.trace_id.hex() == trace_id}
            )
        )
        by_name = {s.name: s for _, s in spans if s.trace_id.hex() == trace_id}
        root = by_name["ingress.change"]
        assert root.parent_span_id == b""
        assert by_name["ingress.convert"].parent_span_id == root.span_id
        assert by_name["ingress.publish"].parent_span_id == root.span_id
        assert by_name["ingress.publish"].span_id.hex() == span_id
        (objects_of_root,) = [
            [each.string_value for each in attribute.value.array_value.values]
            for attribute in root.attributes
            if attribute.key == "pilothouse.objects"
        ]
        assert objects_of_root == [INGRESS]


async def test_programmed_when_every_proxy_runs_what_was_derived(folder):
    """The page and one log line say so once discovery's statuses do, and not before."""
    discovery = config_streams.Source()

    def say(reader, acked, refused=0):
        for config in reader.client.current().configs.values():
            done = acked == 2
            found = [objects.Condition(type="Programmed", status=done, reason="x")]
            body = status.object_status(
                config.key,
                found,
                generation=config.meta.generation,
                counts=status_pb2.ProxyCounts(needed=2, acked=acked, refused=refused),
            )
            url = types.OBJECT_STATUS.type_url
            discovery.put_raw(codec.Encoded(url, str(config.key), body.SerializeToString()))

    async with (
        config_streams.serve(discovery) as address,
        ingress(folder, discovery=address) as program,
        config_streams.read(await grpc_address(program)) as reader,
    ):
        await eventually(lambda: hosts(reader) == ["shop.example.com"])

        async def page():
            _, (found,) = await program.get("/debug/ingresses")
            assert found["object"] == INGRESS
            return found

        async def acked(number):
            return {one["proxies"]["acked"] for one in (await page())["derived"]} == {number}

        assert not (await page())["programmed"]
        say(reader, 1)
        await eventually(lambda: acked(1))
        assert not (await page())["programmed"]
        assert program.log("ingress programmed") == []
        say(reader, 2)
        logged = await program.logged("ingress programmed")
        assert (logged["object"], logged["proxies"]) == (INGRESS, 2)
        found = await page()
        assert found["programmed"]
        assert {one["type"]: one["status"] for one in found["conditions"]} == {
            "Accepted": True,
            "Programmed": True,
            "ResolvedRefs": True,
        }
        say(reader, 1, refused=1)
        logged = await program.logged("ingress not programmed")
        assert logged["object"] == INGRESS
        assert "refused by 1" in logged["reason"]
        assert len(program.log("ingress programmed")) == 1


async def test_own_condition_of_an_ingress_is_told(folder):
    """A backend that is missing shows in the log and on the page, with its field."""
    write(folder, "bad.yaml", shop("bad", "bad.example.com", service="nobody"))
    async with ingress(folder) as program:
        logged = await program.logged("ingress has a problem")
        assert (logged["object"], logged["condition"]) == ("Ingress/default/bad", "ResolvedRefs")
        assert "spec.rules[0].http.paths[0]" in logged["reason"]
        _, found = await program.get("/debug/ingresses")
        by_name = {each["object"]: each for each in found}
        conditions = {c["type"]: c["status"] for c in by_name["Ingress/default/bad"]["conditions"]}
        assert conditions["ResolvedRefs"] is False
        conditions = {c["type"]: c["status"] for c in by_name[INGRESS]["conditions"]}
        assert conditions["ResolvedRefs"] is True


async def test_settings_reach_the_conversion(folder):
    """Listener port and controller are settings."""
    flags = ("--http-port", "8081", "--ingress-controller", "example.com/other")
    write(folder, "class.yaml", CLASS.replace("pilothouse.dev/ingress", "example.com/other"))
    async with (
        ingress(folder, *flags) as program,
        config_streams.read(await grpc_address(program)) as reader,
    ):
        await eventually(lambda: hosts(reader) == ["shop.example.com"])
        assert reader.get(GATEWAY).spec.listeners[0].port == 8081


async def test_health_follows_readiness(tmp_path):
    """gRPC health is NOT_SERVING until the folder is read."""
    folder = tmp_path / "config"
    async with ingress(folder) as program:
        target = str(await grpc_address(program))
        async with grpc.aio.insecure_channel(target) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            answer = health_pb2.HealthCheckResponse
            assert (await watch.read()).status == answer.NOT_SERVING
            folder.mkdir()
            assert (await watch.read()).status == answer.SERVING
            watch.cancel()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_ends_it_within_its_grace(folder, number):
    """With a subscriber connected a signal ends it with 0, without an error in the log."""
    async with (
        ingress(folder) as program,
        config_streams.read(await grpc_address(program)) as reader,
    ):
        await eventually(lambda: hosts(reader) == ["shop.example.com"])
        assert await program.stop(number, deadline=20) == 0
        assert hosts(reader) == ["shop.example.com"]
    assert [each for each in program.log() if each["level"] in ("error", "critical")] == []


async def test_port_in_use_names_address_and_setting(folder):
    """It ends with 1 and says which address is taken and how to change it."""
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        async with ingress(folder, grpc_port=port) as program:
            assert await program.exit() == 1
            assert (await program.logged("cannot run"))["reason"] == (
                f"cannot listen on 127.0.0.1:{port} (--grpc-address): the port is in use"
            )


@pytest.mark.parametrize(
    ("flags", "code", "text"),
    [
        (["--help"], 0, "--ingress-controller"),
        (["--version"], 0, "pilothouse-ingress "),
        (["--http-port", "0"], 2, "--http-port (or PILOTHOUSE_HTTP_PORT)"),
        (["--default-certificate", "x"], 2, "'x' is not of the form NAMESPACE/NAME"),
    ],
)
async def test_command_line(tmp_path, flags, code, text):
    """--help and --version answer; wrong use ends with 2 and names the setting."""
    async with programs.run("pilothouse_ingress", *flags, folder=tmp_path) as program:
        assert await program.exit() == code
        assert text in program.log_path.read_text()
