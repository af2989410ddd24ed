# SPDX-License-Identifier: Apache-2.0
"""The rules that an object can break by itself. Expected: the comments of the protos."""

import textwrap

import pytest
from google.protobuf import duration_pb2
from hypothesis import given, strategies

from pilothouse.api.config.v1alpha1 import destination_policy_pb2, route_rule_pb2
from pilothouse.config import codec, schema, syntax, validation
from pilothouse.model import keys
from tests.support import configs


def broken(kind: str, spec: str) -> list[str]:
    """The violations of a spec, as ``FIELD: MESSAGE``."""
    return [str(one) for one in validation.validate(configs.with_spec(kind, spec))]


LABEL = "must be a DNS label"
HOST = "must be a host name"


def at_gateway(hosts: str) -> str:
    """A RouteRule's spec that is right but for the hosts."""
    return f"{{parents: [{{gateway: g}}], hosts: {hosts}, http: [{{redirect: {{path: /}}}}]}}"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("shop.example.com:8080", "must be a host name without a port"),
        ("192.0.2.1", "must be a host name, is the IP address"),
        ("::1", "must be a host name, is the IP address"),
        ("[::1]", "must be a host name, is the IP address"),
        ("a.*.com", "may have a * only as its whole first label"),
        ("*a.com", "may have a * only as its whole first label"),
        ("**", "may have a * only as its whole first label"),
        ("a..b", HOST),
        ("a.b.", HOST),
        ("a_b.c", HOST),
        ("-a.b", HOST),
        ("http://a.b", HOST),
        ("", HOST),
        ("a" * 64, HOST),
        (".".join(["a" * 63] * 4), HOST),
    ],
)
def test_a_host_that_no_listener_can_serve_is_refused(host: str, expected: str):
    """By rules and by listeners alike."""
    spec = at_gateway(f"['{host}']")
    (of_rule,) = broken("RouteRule", spec)
    assert of_rule.startswith(f"spec.hosts[0]: {expected}")
    (of_listener,) = broken("MeshGateway", gateway(f"hosts: ['{host}']"))
    assert of_listener.startswith(f"spec.listeners[0].hosts[0]: {expected}")


def test_a_host_that_is_there_twice_is_refused_in_whatever_case():
    """A proxy that is told a domain twice refuses everything."""
    spec = at_gateway("[a.b, c.d, A.b]")
    assert broken("RouteRule", spec) == ["spec.hosts[2]: is the same as spec.hosts[0]"]


def test_all_violations_are_told_at_once():
    """Metadata first, then in the order of the spec."""
    config = configs.with_spec(
        "RouteRule",
        """\
        parents: [{service: A}]
        hosts: [a.b]
        priority: 5000
        http:
        - timeout: 1s
          matches: [{path: {exact: a}, method: get}]
          destinations: [{service: b, weight: 0}]
          retry: {attempts: 99, perTryTimeout: 2s, retryOn: [x]}
        - redirect: {scheme: x, code: 1}
        """,
        name="A_b",
        metadata="namespace: C.d, labels: {'-': a}, annotations: {'+': b}",
    )
    assert [violation.field for violation in validation.validate(config)] == [
        "metadata.name",
        "metadata.namespace",
        "metadata.labels[-]",
        "metadata.annotations[+]",
        "spec.parents[0].service",
        "spec.hosts",
        "spec.priority",
        "spec.http[0].matches[0].path.exact",
        "spec.http[0].matches[0].method",
        "spec.http[0].destinations",
        "spec.http[0].retry.attempts",
        "spec.http[0].retry.perTryTimeout",
        "spec.http[0].retry.retryOn[0]",
        "spec.http[1].redirect.scheme",
        "spec.http[1].redirect.code",
    ]


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        ({"seconds": -1}, "must not be negative"),
        ({"nanos": -1}, "must not be negative"),
        ({"nanos": 1}, "must be whole milliseconds"),
        ({"seconds": 10**9}, "must be at most 99999h59m59s999ms"),
    ],
    ids=str,
)
def test_a_duration_that_yaml_cannot_say_is_refused(duration: dict[str, int], expected: str):
    """Other programs could send one, and its author could never read it back."""
    spec = route_rule_pb2.RouteRuleSpec(
        parents=[route_rule_pb2.ParentReference(service="a")],
        http=[route_rule_pb2.HttpRoute(timeout=duration_pb2.Duration(**duration))],
    )
    key = keys.ObjectKey(kind="RouteRule", namespace="default", name="a")
    violations = validation.validate(codec.make(key, spec, source="test"))
    assert [str(one) for one in violations] == [f"spec.http[0].timeout: {expected}"]


def test_what_this_program_has_no_name_for_is_a_violation():
    """Else a newer object would be served without what is new in it."""
    spec = destination_policy_pb2.DestinationPolicySpec(service="a")
    spec.load_balancer.policy = 9  # type: ignore[assignment]
    spec.MergeFromString(b"\xf8\x07\x01")  # field 127
    key = keys.ObjectKey(kind="DestinationPolicy", namespace="default", name="a")
    violations = validation.validate(codec.make(key, spec, source="test"))
    assert [str(one) for one in violations] == [
        "spec: unknown field number 127",
        "spec.loadBalancer.policy: unknown value 9",
    ]


def test_weights_that_overflow_are_refused():
    """Envoy adds them up in 32 bits."""
    destination = route_rule_pb2.Destination(service="a", weight=1_000_000)
    spec = route_rule_pb2.RouteRuleSpec(
        parents=[route_rule_pb2.ParentReference(service="a")],
        http=[route_rule_pb2.HttpRoute(destinations=[destination] * 4_295)],
    )
    key = keys.ObjectKey(kind="RouteRule", namespace="default", name="a")
    (violation,) = validation.validate(codec.make(key, spec, source="test"))
    assert violation.field == "spec.http[0].destinations"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("service: a", []),
        (
            (
                "{service: a, namespace: b, labels: {c: d}, connectTimeout: 1ms,"
                " loadBalancer: {policy: RANDOM}, circuitBreaker: {maxRetries: 0}}"
            ),
            [],
        ),
        ("labels: {}", ["spec: one of service, externalService is required"]),
        ("externalService: api.v1", []),
        ("externalService: A", ["spec.externalService: must be a DNS subdomain"]),
        (
            (
                "{externalService: a, labels: {b: c}, locality: {failover: {}},"
                " ports: [{port: 1, locality: {}}]}"
            ),
            [
                "spec.labels: must not be set for an external service",
                "spec.locality: must not be set for an external service",
                "spec.ports[0].locality: must not be set for an external service",
            ],
        ),
        ("service: a.b", [f"spec.service: {LABEL}"]),
        ("{service: a, namespace: B}", [f"spec.namespace: {LABEL}"]),
        ("{service: a, labels: {'': b}}", ["spec.labels[]: must be a label's key"]),
        ("{service: a, connectTimeout: 0s}", ["spec.connectTimeout: must be greater than 0s"]),
    ],
)
def test_each_rule_of_a_destination_policy_is_told_by_its_field(spec: str, expected: list[str]):
    """Or nothing, when it is right."""
    _compare(broken("DestinationPolicy", spec), expected)


def gateway(listener: str = "", **parts: str) -> str:
    """A valid MeshGateway's spec with some fields replaced, in YAML flow style."""
    own = {"name": "http", "port": "80", "protocol": "HTTP"}
    given = dict(part.split(": ", 1) for part in listener.split(" ; ") if part)
    shown = ", ".join(f"{name}: {value}" for name, value in (own | given).items() if value)
    fields = {"selector": "{app: gw}", "listeners": f"[{{{shown}}}]", **parts}
    return "\n".join(f"{name}: {value}" for name, value in fields.items())


HTTPS = "protocol: HTTPS ; tls: {certificates: [{secret: s}]}"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (gateway(), []),
        (gateway(HTTPS), []),
        (gateway("hosts: ['*', '*.a.b', C.d]", allowedNamespaces="['*', a]"), []),
        (gateway("protocol: HTTPS ; tls: {certificates: [{secret: s, namespace: default}]}"), []),
        (gateway(selector="{}"), ["spec.selector: at least one label is required"]),
        (gateway(selector="{a: -}"), ["spec.selector[a]: must be a label's value"]),
        (gateway(listeners="[]"), ["spec.listeners: at least one is required"]),
        (gateway("name: ''"), ["spec.listeners[0].name: is required"]),
        (gateway("name: A"), [f"spec.listeners[0].name: {LABEL}"]),
        (gateway("port: 0"), ["spec.listeners[0].port: is required: a number from 1 to 65535"]),
        (gateway("port: 65536"), ["spec.listeners[0].port: must be from 1 to 65535"]),
        (
            gateway("protocol: null"),
            ["spec.listeners[0].protocol: is required: HTTP, HTTPS, TLS, TCP or UDP"],
        ),
        (gateway("protocol: HTTPS"), ["spec.listeners[0].tls: is required when the protocol is"]),
        (
            gateway("tls: {certificates: [{secret: s}]}"),
            ["spec.listeners[0].tls: must not be set when the protocol is HTTP"],
        ),
        (
            gateway("protocol: HTTPS ; tls: {}"),
            ["spec.listeners[0].tls.certificates: at least one is required"],
        ),
        (
            gateway("protocol: HTTPS ; tls: {certificates: [{}, {secret: S}]}"),
            [
                "spec.listeners[0].tls.certificates[0].secret: is required",
                "spec.listeners[0].tls.certificates[1].secret: must be a DNS subdomain",
            ],
        ),
        (
            gateway("protocol: HTTPS ; tls: {certificates: [{secret: s, namespace: other}]}"),
            ["spec.listeners[0].tls.certificates[0].namespace: must be the gateway's own, default"],
        ),
        (
            gateway(
                listeners="[{name: a, port: 80, protocol: HTTP}, {name: a, port: 80,"
                " protocol: HTTPS, tls: {certificates: [{secret: s}]}}]"
            ),
            [
                "spec.listeners[1].name: the name a is taken by spec.listeners[0].name",
                "spec.listeners[1].port: the port 80 is taken by spec.listeners[0].port",
            ],
        ),
        (gateway(allowedNamespaces="['*a']"), [f"spec.allowedNamespaces[0]: {LABEL}"]),
        (gateway(allowedNamespaces="['']"), ["spec.allowedNamespaces[0]: is required"]),
    ],
)
def test_each_rule_of_a_mesh_gateway_is_told_by_its_field(spec: str, expected: list[str]):
    """Or nothing, when it is right."""
    _compare(broken("MeshGateway", spec), expected)


def test_a_derived_gateway_may_name_secrets_of_another_namespace():
    """As an Ingress does, whose secret is its own."""
    spec = gateway("protocol: HTTPS ; tls: {certificates: [{secret: s, namespace: other}]}")
    config = configs.read(
        "apiVersion: pilothouse.dev/v1alpha1\nkind: MeshGateway\nmetadata:\n  name: a\n"
        "  origins: [{kind: Ingress, namespace: other, name: b}]\n"
        f"spec:\n{textwrap.indent(spec, '  ')}\n",
        derived=True,
    )
    assert validation.validate(config) == ()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{hosts: [Api.example.com], ports: [{number: 443}]}", []),
        (
            (
                "{hosts: [a.b, c.d], ports: [{number: 80, targetPort: 8080}, {number: 81}],"
                " resolution: STATIC, endpoints: [{address: 192.0.2.1}, {address: '2001:db8::1'}]}"
            ),
            [],
        ),
        ("{hosts: [a.b], ports: [{number: 1}], endpoints: [{address: c.d}]}", []),
        ("{hosts: [a.b], ports: [{number: 1}], endpoints: [{address: 192.0.2.1}]}", []),
        ("{ports: [{number: 1}]}", ["spec.hosts: at least one is required"]),
        ("{hosts: [a.b]}", ["spec.ports: at least one is required"]),
        (
            "{hosts: ['*.a.b', 'a.b:80', 192.0.2.1, a.b, A.B], ports: [{number: 1}]}",
            [
                "spec.hosts[0]: must be a host name without a wildcard",
                "spec.hosts[1]: must be a host name without a port",
                "spec.hosts[2]: must be a host name, is the IP address",
                "spec.hosts[4]: is the same as spec.hosts[3]",
            ],
        ),
        (
            "{hosts: [a.b], ports: [{}, {number: 65536}, {number: 1, targetPort: 0}, {number: 1}]}",
            [
                "spec.ports[0].number: is required",
                "spec.ports[1].number: must be from 1 to 65535",
                "spec.ports[2].targetPort: must be from 1 to 65535",
                "spec.ports[3].number: the port 1 is taken by spec.ports[2].number",
            ],
        ),
        (
            "{hosts: [a.b], ports: [{number: 1}], resolution: STATIC}",
            ["spec.endpoints: at least one is required when resolution is STATIC"],
        ),
        (
            "{hosts: [a.b], ports: [{number: 1}], resolution: STATIC, endpoints: [{address: c.d}]}",
            ["spec.endpoints[0].address: must be an IP address, is 'c.d'"],
        ),
        (
            "{hosts: [a.b], ports: [{number: 1}], endpoints: [{}, {address: 'c:1'}]}",
            [
                "spec.endpoints[0].address: is required",
                "spec.endpoints[1].address: must be a host name without a port",
            ],
        ),
    ],
)
def test_each_rule_of_an_external_service_is_told_by_its_field(spec: str, expected: list[str]):
    """Or nothing, when it is right."""
    _compare(broken("ExternalService", spec), expected)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{}", []),
        ("tracing: {address: otel.monitoring.svc, port: 4317, samplingPercent: 0.5}", []),
        ("tracing: {address: '::1', samplingPercent: 100}", []),
        ("tracing: {}", ["spec.tracing.address: is required"]),
        ("tracing: {address: 'a:1'}", ["spec.tracing.address: must be a host name without a port"]),
        ("tracing: {address: a, port: 0}", ["spec.tracing.port: must be from 1 to 65535"]),
        (
            "tracing: {address: a, samplingPercent: 100.1}",
            ["spec.tracing.samplingPercent: must be from 0 to 100, is 100.1"],
        ),
        (
            "tracing: {address: a, samplingPercent: -1}",
            ["spec.tracing.samplingPercent: must be from 0 to 100, is -1"],
        ),
    ],
)
def test_each_rule_of_a_mesh_config_is_told_by_its_field(spec: str, expected: list[str]):
    """Or nothing, when it is right."""
    _compare(broken("MeshConfig", spec), expected)


def _compare(found: list[str], expected: list[str]) -> None:
    assert len(found) == len(expected), found
    for one, start in zip(found, expected, strict=True):
        assert one.startswith(start)


@given(
    strategies.sampled_from(sorted(schema.KINDS)).flatmap(
        lambda kind: strategies.tuples(
            strategies.just(kind), configs.messages(schema.KINDS[kind].spec)
        )
    )
)
def test_no_object_makes_validation_raise(made: tuple[str, object]):
    """And the answer is the same each time."""
    kind, spec = made
    key = keys.ObjectKey(kind=kind, namespace="default", name="a")
    config = codec.make(key, spec, source="test")  # type: ignore[arg-type]
    assert validation.validate(config) == validation.validate(config)


@pytest.mark.parametrize("value", ["fe80::1%eth0", "192.0.2.01", "192.0.2", "a", ""])
def test_what_is_no_ip_address_is_told_from_one(value: str):
    """A zone means something on one machine only."""
    assert not syntax.is_ip_address(value)
