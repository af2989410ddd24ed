# SPDX-License-Identifier: Apache-2.0
"""The meshes that istio's own generation benchmarks are run on, by its names.

Shapes are those of its `pilot/pkg/xds/bench_test.go`, said in our objects: a VirtualService is a
RouteRule, a ServiceEntry that selects workloads a Service with endpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from bench import meshes

_API = "pilothouse.dev/v1alpha1"
SIDECAR = "sidecar~10.9.0.1~bench.default~cluster.local"
GATEWAY = "gateway~10.9.0.2~edge.default~cluster.local"


class Case(NamedTuple):
    """A mesh, and the proxy that is configured in it."""

    node: str
    manifests: Callable[[], Iterator[str]]


def _objects(kind: str, name: str, spec: str) -> str:
    return f"apiVersion: {_API}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def _service(number: int, ports: str) -> str:
    ip = f"10.96.{number >> 8}.{number & 255}"
    return (
        f"apiVersion: v1\nkind: Service\nmetadata: {{name: s{number}}}\n"
        f"spec: {{clusterIP: {ip}, ports: [{ports}]}}\n"
    )


def _gateways() -> Iterator[str]:
    for number in range(1000):
        hosts = ", ".join(f"h{number}-{host}.example.com" for host in range(3))
        listeners = (
            f"[{{name: http, port: 80, protocol: HTTP, hosts: [{hosts}]}}, "
            f"{{name: https, port: 443, protocol: HTTPS, hosts: [{hosts}], "
            "tls: {certificates: [{secret: edge}]}}]"
        )
        spec = f"{{selector: {{app: edge}}, listeners: {listeners}}}"
        yield _objects("MeshGateway", f"g{number}", spec)
        yield meshes.route_rule(f"r{number}", f"{{gateway: g{number}}}", to=f"s{number}")
        yield _service(number, "{name: http, port: 80}")


def _gateways_shared() -> Iterator[str]:
    hosts = ", ".join(f"h{host}.example.com" for host in range(3))
    listener = f"{{name: http, port: 80, protocol: HTTP, hosts: [{hosts}]}}"
    yield _objects("MeshGateway", "g", f"{{selector: {{app: edge}}, listeners: [{listener}]}}")
    yield _service(0, "{name: http, port: 80}")
    for number in range(1000):
        matches = ", ".join(f"{{path: {{prefix: /p{number}/{part}}}}}" for part in range(6))
        http = f"[{{matches: [{matches}], destinations: [{{service: s0}}]}}]"
        yield _objects("RouteRule", f"r{number}", f"{{parents: [{{gateway: g}}], http: {http}}}")


def _services(port: str) -> Callable[[], Iterator[str]]:
    def made() -> Iterator[str]:
        for number in range(100):
            yield _service(number, port)

    return made


def _rules() -> Iterator[str]:
    for number in range(100):
        yield _service(number, "{name: http, port: 80}")
        yield meshes.route_rule(f"r{number}", f"{{service: s{number}}}", to=f"s{number}")


def _external_names() -> Iterator[str]:
    for number in range(100):
        yield (
            f"apiVersion: v1\nkind: Service\nmetadata: {{name: s{number}}}\n"
            f"spec: {{type: ExternalName, externalName: h{number}.example.com}}\n"
        )


def _selecting() -> Iterator[str]:
    names = ("http-a", "http-b", "http-c", "http-d")
    ports = ", ".join(f"{{name: {name}, port: {80 + at}}}" for at, name in enumerate(names))
    targets = ", ".join(f"{{name: {name}, port: {8080 + at}}}" for at, name in enumerate(names))
    for number in range(100):
        endpoints = ", ".join(
            f"{{addresses: [{address}]}}" for address in meshes.addresses(number, 10)
        )
        yield _service(number, ports)
        yield (
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"
            f"metadata: {{name: s{number}, labels: {{kubernetes.io/service-name: s{number}}}}}\n"
            f"addressType: IPv4\nports: [{targets}]\nendpoints: [{endpoints}]\n"
        )


CASES: Mapping[str, Case] = {
    "gateways": Case(GATEWAY, _gateways),
    "gateways-shared": Case(GATEWAY, _gateways_shared),
    "http": Case(SIDECAR, _services("{name: http, port: 80}")),
    "tcp": Case(SIDECAR, _services("{name: tcp, port: 9000}")),
    "tls": Case(SIDECAR, _services("{name: tls, port: 443}")),
    "virtualservice": Case(SIDECAR, _rules),
    "externalname": Case(SIDECAR, _external_names),
    "serviceentry-workloadentry": Case(SIDECAR, _selecting),
}
