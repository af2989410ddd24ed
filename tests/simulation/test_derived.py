# SPDX-License-Identifier: Apache-2.0
"""Where calls go by what the other services derive: Ingresses, and the way out of the mesh."""

from collections.abc import Iterable, Mapping

import pytest

from pilothouse.config import objects
from pilothouse.model import keys
from pilothouse_egress import derive
from tests.support import calls, ingresses, meshes

INGRESS_LABELS = keys.labels({"pilothouse.dev/gateway": "ingress"})
EGRESS_LABELS = keys.labels({"pilothouse.dev/gateway": "egress"})

SERVICES = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: cart}
spec: {clusterIP: 10.96.0.2, ports: [{name: http, port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: fallback}
spec: {clusterIP: 10.96.0.3, ports: [{port: 3000}]}
"""
INGRESS = """
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: pilothouse}
spec: {controller: pilothouse.dev/ingress}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop}
spec:
  ingressClassName: pilothouse
  defaultBackend: {service: {name: fallback, port: {number: 3000}}}
  rules:
  - host: shop.example.com
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}
      - {path: /cart, pathType: Prefix, backend: {service: {name: cart, port: {name: http}}}}
      - {path: /cart, pathType: Exact, backend: {service: {name: web, port: {number: 80}}}}
      - {path: /gone, pathType: Prefix, backend: {service: {name: gone, port: {number: 80}}}}
  - host: "*.foo.com"
    http:
      paths:
      - {path: /foo, pathType: Exact, backend: {service: {name: web, port: {number: 80}}}}
"""


def by_key(configs: Iterable[objects.Config]) -> Mapping[keys.ObjectKey, objects.Config]:
    return {config.key: config for config in configs}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("shop.example.com/", "web.default:80"),
        ("shop.example.com:80/x", "web.default:80"),
        ("shop.example.com/cart", "web.default:80"),
        ("shop.example.com/cart/", "cart.default:8080"),
        ("shop.example.com/cart/1", "cart.default:8080"),
        ("shop.example.com/cartoon", "web.default:80"),
        ("shop.example.com/gone/x", 503),
        ("bar.foo.com/foo", "web.default:80"),
        ("bar.foo.com/other", "fallback.default:3000"),
        ("baz.bar.foo.com/foo", 404),
        ("foo.com/foo", 404),
        ("elsewhere.org/", 404),
    ],
)
def test_an_ingress(url: str, expected: str | int):
    """Kubernetes' rules, through everything that stands between a manifest and a proxy."""
    output = ingresses.ingress.convert(ingresses.read(SERVICES + INGRESS))
    mesh = meshes.from_manifests(SERVICES, by_key(output.configs))
    plan = mesh.plan(meshes.edge("edge.pilothouse-system", labels=INGRESS_LABELS))
    outcome = calls.visit(plan, f"http://{url}", port=8080)
    if isinstance(expected, int):
        assert (outcome.status, outcome.shares) == (expected, {})
    else:
        assert outcome.cluster == expected


def test_the_way_out():
    """A sidecar sends to the egress gateway, which sends out; without derived rules nobody does."""
    bank = meshes.external(
        "bank.shop",
        "{hosts: [bank.example], ports: [{number: 80, targetPort: 8443}],"
        " throughEgressGateway: true}",
    )
    gateway = meshes.service("egress-gateway.pilothouse-system", 8080)
    found = derive.derive(bank.values(), derive.Gateway())
    mesh = meshes.mesh(gateway, bank, by_key(found.configs))
    for namespace in ("shop", "default"):
        inside = mesh.plan(meshes.sidecar(f"client.{namespace}"))
        outcome = calls.get(inside, "http://bank.example/x")
        assert outcome.cluster == "egress-gateway.pilothouse-system:8080"
    outside = mesh.plan(meshes.edge("egress.pilothouse-system", labels=EGRESS_LABELS))
    outcome = calls.visit(outside, "http://bank.example/x", port=8080)
    assert outcome.addresses == {"external bank.shop:80": ("bank.example:8443",)}
    assert all(
        condition.status
        for key, conditions in mesh.conditions.items()
        if key.kind == "RouteRule"
        for condition in conditions
    )
    closed = meshes.mesh(gateway, bank).plan(meshes.sidecar())
    assert calls.get(closed, "http://bank.example/x").status == 503
