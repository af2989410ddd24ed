# SPDX-License-Identifier: Apache-2.0
"""What external services become at the egress gateway."""

import hypothesis
import pytest
from hypothesis import strategies

from pilothouse.api.config.v1alpha1 import (
    external_service_pb2,
    mesh_gateway_pb2,
    route_rule_pb2,
)
from pilothouse.config import codec, validation
from pilothouse.model import keys
from pilothouse_egress import derive

GATEWAY = derive.Gateway()
GATEWAY_OBJECT = "MeshGateway/pilothouse-system/egress"


def external(
    name, *, namespace="default", hosts=("api.example.com",), ports=(80,), through=True, **meta
):
    spec = external_service_pb2.ExternalServiceSpec(hosts=hosts, through_egress_gateway=through)
    for port in ports:
        spec.ports.add(number=port)
    key = keys.ObjectKey("ExternalService", namespace, name)
    return codec.make(key, spec, source="discovery", **meta)


def derived(*services, gateway=GATEWAY):
    found = derive.derive(services, gateway)
    return {str(config.key): config for config in found.configs}, found.conditions


def test_gateway_is_there_without_any_service():
    """The gateway listens on its port for every host, and lets every namespace attach."""
    configs, conditions = derived()
    (gateway,) = configs.values()
    assert str(gateway.key) == GATEWAY_OBJECT
    assert gateway.spec == mesh_gateway_pb2.MeshGatewaySpec(
        selector={"pilothouse.dev/gateway": "egress"},
        allowed_namespaces=["*"],
        listeners=[
            mesh_gateway_pb2.Listener(
                name="http",
                port=8080,
                protocol=mesh_gateway_pb2.Listener.PROTOCOL_HTTP,
                hosts=["*"],
            )
        ],
    )
    assert gateway.meta.origins == ()
    assert conditions == {}


def test_service_becomes_a_rule_in_the_mesh_and_one_at_the_gateway():
    """The mesh sends its requests to the gateway's Service, the gateway sends them on."""
    service = external("partner", namespace="shop", created=17, generation=4)
    configs, conditions = derived(service)
    at_gateway = configs["RouteRule/shop/egress-partner"]
    assert at_gateway.spec == route_rule_pb2.RouteRuleSpec(
        parents=[route_rule_pb2.ParentReference(gateway="egress", namespace="pilothouse-system")],
        hosts=["api.example.com"],
        http=[
            route_rule_pb2.HttpRoute(
                destinations=[route_rule_pb2.Destination(external_service="partner")]
            )
        ],
    )
    in_mesh = configs["RouteRule/shop/mesh-egress-partner"]
    assert in_mesh.spec == route_rule_pb2.RouteRuleSpec(
        parents=[route_rule_pb2.ParentReference(external_service="partner")],
        http=[
            route_rule_pb2.HttpRoute(
                destinations=[
                    route_rule_pb2.Destination(
                        service="egress-gateway", namespace="pilothouse-system", port=8080
                    )
                ]
            )
        ],
    )
    for rule in (at_gateway, in_mesh):
        assert rule.meta.origins == (service.key,)
        assert (rule.meta.created, rule.meta.generation, rule.source) == (17, 4, "egress")
    assert [(c.type, c.status) for c in conditions[service.key]] == [("Accepted", True)]


def test_service_that_goes_straight_out_is_no_concern():
    """Without throughEgressGateway nothing is derived and nothing is said."""
    configs, conditions = derived(external("partner", through=False))
    assert list(configs) == [GATEWAY_OBJECT]
    assert conditions == {}


def test_gateway_settings_reach_gateway_and_mesh():
    """Another Service name and port are used on both sides."""
    configs, _ = derived(external("a"), gateway=derive.Gateway(service="exit", port=9000))
    destination = configs["RouteRule/default/mesh-egress-a"].spec.http[0].destinations[0]
    assert (destination.service, destination.port) == ("exit", 9000)
    assert configs[GATEWAY_OBJECT].spec.listeners[0].port == 9000


@pytest.mark.parametrize(
    ("service", "field"),
    [
        (external("a", ports=(80, 8080)), "spec.ports: has 2 entries"),
        (external("a", ports=()), "spec.ports: has 0 entries"),
        (external("a", hosts=()), "spec.hosts: is empty"),
        (external("a", hosts=("b.com", "*.c.com")), "spec.hosts[1]: '*.c.com' has a wildcard"),
        (external("a" * 242), "metadata.name: has 242 characters, and at most 241"),
    ],
)
def test_what_cannot_be_routed_is_refused_with_its_field(service, field):
    """No rules, so its traffic is refused at the sidecar; a condition says why; others go on."""
    configs, conditions = derived(service, external("good"))
    assert sorted(configs) == [
        GATEWAY_OBJECT,
        "RouteRule/default/egress-good",
        "RouteRule/default/mesh-egress-good",
    ]
    (condition,) = conditions[service.key]
    assert (condition.type, condition.status) == ("Accepted", False)
    assert condition.message.startswith(field)


def test_every_reason_is_told_at_once():
    """Two mistakes are two sentences of one condition."""
    service = external("a", hosts=(), ports=(1, 2))
    _, conditions = derived(service)
    assert conditions[service.key][0].message.count("spec.") == 2


def test_names_do_not_collide():
    """Services whose names look like those of derived rules get rules of their own."""
    names = ["a", "a-mesh", "mesh-egress-a", "egress-a", "mesh-a"]
    configs, _ = derived(*(external(name) for name in names))
    assert len(configs) == 1 + 2 * len(names)


def test_longest_name_fits():
    """A name of 241 characters gives rules with names of at most 253."""
    configs, _ = derived(external("a" * 241))
    assert max(len(config.key.name) for config in configs.values()) == 253


_SERVICES = strategies.lists(
    strategies.builds(
        external,
        strategies.sampled_from(["a", "b", "a-mesh", "c"]),
        namespace=strategies.sampled_from(["x", "y"]),
        ports=strategies.sampled_from([(80,), (80, 81)]),
        through=strategies.booleans(),
    ),
    unique_by=lambda one: one.key,
    max_size=6,
)


@hypothesis.given(_SERVICES, strategies.randoms())
def test_order_of_the_services_means_nothing(services, random):
    """Any order gives the same objects, in key order, and the same bytes."""
    shuffled = list(services)
    random.shuffle(shuffled)
    first, second = derive.derive(services, GATEWAY), derive.derive(shuffled, GATEWAY)
    assert first == second
    assert [codec.encode(c) for c in first.configs] == [codec.encode(c) for c in second.configs]
    assert [c.key for c in first.configs] == sorted(c.key for c in first.configs)


@hypothesis.given(_SERVICES)
def test_what_is_derived_is_valid(services):
    """Whatever comes in, what goes out breaks no rule that discovery checks."""
    for config in derive.derive(services, GATEWAY).configs:
        assert validation.validate(config) == ()
