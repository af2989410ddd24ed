# SPDX-License-Identifier: Apache-2.0
"""Config objects from YAML and from bytes, and back."""

import textwrap
from typing import Any

import pytest
from google.protobuf import duration_pb2

from pilothouse.api.config.v1alpha1 import (
    destination_policy_pb2,
    matches_pb2,
    mesh_gateway_pb2,
    route_rule_pb2,
)
from pilothouse.config import codec, documents, objects, scalars
from pilothouse.model import keys
from tests.support import configs

REVIEWS = """\
apiVersion: pilothouse.dev/v1alpha1
kind: RouteRule
metadata: {name: reviews, namespace: default}
spec:
  parents: [{service: reviews}]
  http:
  - name: testers
    matches: [{headers: [{name: x-user, exact: jason}]}]
    destinations: [{service: reviews, labels: {version: v2}}]
  - name: everyone
    destinations:
    - {service: reviews, labels: {version: v1}, weight: 75}
    - {service: reviews, labels: {version: v3}, weight: 0}
    timeout: 1m30s
    retry: {attempts: 2, perTryTimeout: 500ms, retryOn: [connect-failure, refused-stream]}
"""


def mistakes(text: str, *, derived: bool = False) -> list[str]:
    (document,), _ = documents.load(textwrap.dedent(text), location="f.yaml")
    config, problems = codec.from_manifest(document, source="test", derived=derived)
    assert config is None
    assert {problem.location for problem in problems} == {"f.yaml:1"}
    return [problem.message for problem in problems]


def test_a_rule_is_read_into_the_message_of_its_proto():
    """Durations, maps, oneofs, and the presence of a weight that is 0."""
    config = configs.read(REVIEWS)
    seconds = duration_pb2.Duration
    assert config.key == keys.ObjectKey(kind="RouteRule", namespace="default", name="reviews")
    assert config.spec == route_rule_pb2.RouteRuleSpec(
        parents=[route_rule_pb2.ParentReference(service="reviews")],
        http=[
            route_rule_pb2.HttpRoute(
                name="testers",
                matches=[
                    matches_pb2.HttpMatch(
                        headers=[matches_pb2.HeaderMatch(name="x-user", exact="jason")]
                    )
                ],
                destinations=[
                    route_rule_pb2.Destination(service="reviews", labels={"version": "v2"})
                ],
            ),
            route_rule_pb2.HttpRoute(
                name="everyone",
                destinations=[
                    route_rule_pb2.Destination(
                        service="reviews", labels={"version": "v1"}, weight=75
                    ),
                    route_rule_pb2.Destination(
                        service="reviews", labels={"version": "v3"}, weight=0
                    ),
                ],
                timeout=seconds(seconds=90),
                retry=route_rule_pb2.HttpRetry(
                    attempts=2,
                    per_try_timeout=seconds(nanos=500_000_000),
                    retry_on=["connect-failure", "refused-stream"],
                ),
            ),
        ],
    )


def test_enums_are_plain_words():
    """As the protos' comments give them."""
    policy: Any = configs.with_spec(
        "DestinationPolicy", "{service: a, loadBalancer: {policy: LEAST_REQUEST}}"
    ).spec
    expected = destination_policy_pb2.LoadBalancer.POLICY_LEAST_REQUEST
    assert policy.load_balancer.policy == expected


def test_metadata_is_read_and_what_kubernetes_adds_is_ignored():
    """Also the status, which is not the author's to write."""
    config = configs.read(
        """\
        apiVersion: pilothouse.dev/v1alpha1
        kind: MeshConfig
        metadata:
          name: default
          namespace: pilothouse-system
          uid: 0b4f
          generation: 7
          resourceVersion: "123"
          creationTimestamp: 2001-09-09T01:46:40Z
          labels: {b: "2", a: "1"}
          annotations: {x/y: any text}
          managedFields: [{manager: kubectl}]
          finalizers: [a/b]
          deletionTimestamp: null
        status: {whatever: true}
        """
    )
    assert config.meta == objects.Meta(
        key=keys.ObjectKey(kind="MeshConfig", namespace="pilothouse-system", name="default"),
        generation=7,
        created=1_000_000_000 * scalars.NANOSECONDS,
        labels=(("a", "1"), ("b", "2")),
        annotations=(("x/y", "any text"),),
        resource_version="123",
    )
    assert (config.source, config.location) == ("test", "test.yaml:1")


def test_what_metadata_leaves_out_has_defaults():
    """The namespace `default`, the generation that the store counts, and no creation time."""
    (document,), _ = documents.load(
        "apiVersion: pilothouse.dev/v1alpha1\nkind: MeshConfig\nmetadata: {name: a}\n",
        location="f.yaml",
    )
    config, _ = codec.from_manifest(document, source="test", generation=4)
    assert config is not None
    assert config.key.namespace == "default"
    assert (config.meta.generation, config.meta.created) == (4, 0)


def test_all_mistakes_are_told_at_once_with_their_fields():
    """In the order of the document, whatever their kind."""
    assert mistakes(
        """\
        apiVersion: pilothouse.dev/v1
        kind: RouteRule
        metadata: {nam: a, creationTimestamp: 5}
        spec:
          parents:
          - {service: a, gateway: b, port: "80"}
          - {}
          hosts: [null, 5]
          priority: 4294967296
          http:
          - timeout: 1.5s
            destinations:
            - {service: a, weight: -1, labels: {version: 1.10}}
            retry: {per_try_timeout: 5s, attempts: true, retryOn: reset}
            redirect: text
          - {matches: {path: /}}
        stats: {}
        """
    ) == [
        "stats: unknown field; did you mean `status`?",
        "apiVersion: must be pilothouse.dev/v1alpha1, is the text 'pilothouse.dev/v1'",
        "metadata.nam: unknown field; did you mean `name`?",
        (
            "metadata.creationTimestamp: must be a time as in RFC 3339, 2026-01-31T12:00:00Z,"
            " is the number 5"
        ),
        "spec.parents[0].port: must be a whole number, is the text '80'",
        "spec.parents[0]: `service` and `gateway` exclude each other; set one of them",
        "spec.hosts[0]: must be text, is empty",
        "spec.hosts[1]: must be text, is the number 5; put it in quotes",
        "spec.priority: must be from -2147483648 to 2147483647, is 4294967296",
        (
            "spec.http[0].timeout: must be a duration such as 500ms, 2s or 1m30s:"
            " whole numbers with h, m, s or ms, is '1.5s'"
        ),
        "spec.http[0].destinations[0].weight: must be from 0 to 4294967295, is -1",
        (
            "spec.http[0].destinations[0].labels[version]: must be text, is the number 1.1;"
            " put it in quotes"
        ),
        "spec.http[0].retry.per_try_timeout: unknown field; did you mean `perTryTimeout`?",
        "spec.http[0].retry.attempts: must be a whole number, is the boolean true",
        "spec.http[0].retry.retryOn: must be a list, is the text 'reset'",
        "spec.http[0].redirect: must be a mapping, is the text 'text'",
        "spec.http[1].matches: must be a list, is a mapping",
        "metadata.name: is required",
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "loadBalancer: {policy: least_request}",
            (
                "spec.loadBalancer.policy: must be one of LEAST_REQUEST, ROUND_ROBIN, RANDOM,"
                " RING_HASH, MAGLEV,"
                " is the text 'least_request'; did you mean `LEAST_REQUEST`?"
            ),
        ),
        (
            "loadBalancer: {policy: UNSPECIFIED}",
            (
                "spec.loadBalancer.policy: must be one of LEAST_REQUEST, ROUND_ROBIN, RANDOM,"
                " RING_HASH, MAGLEV,"
                " is the text 'UNSPECIFIED'"
            ),
        ),
        (
            "loadBalancer: {policy: 1}",
            (
                "spec.loadBalancer.policy: must be one of LEAST_REQUEST, ROUND_ROBIN, RANDOM,"
                " RING_HASH, MAGLEV,"
                " is the number 1"
            ),
        ),
        (
            "connectTimeout: 5",
            "spec.connectTimeout: must be a duration such as 500ms, 2s or 1m30s, is the number 5",
        ),
        ("labels: [a]", "spec.labels: must be a mapping, is a list"),
        ("labels: {a: null}", "spec.labels[a]: must be text, is empty"),
        (
            "circuitBreaker: {zzz: 1}",
            (
                "spec.circuitBreaker.zzz: unknown field; there are `maxConnections`,"
                " `maxPendingRequests`, `maxRequests`, `maxRetries`, `retryBudget`"
            ),
        ),
    ],
)
def test_a_value_that_its_field_cannot_take_is_named_with_what_it_must_be(spec: str, message: str):
    """Choices are listed, and the likely one is offered."""
    text = (
        "apiVersion: pilothouse.dev/v1alpha1\nkind: DestinationPolicy\n"
        f"metadata: {{name: a}}\nspec: {{service: a, {spec}}}\n"
    )
    assert mistakes(text) == [message]


@pytest.mark.parametrize("percent", ["true", "text", ".nan", ".inf"])
def test_a_number_must_be_one(percent: str):
    """Not every float is."""
    (message,) = mistakes(
        "apiVersion: pilothouse.dev/v1alpha1\nkind: MeshConfig\nmetadata: {name: a}\n"
        f"spec: {{tracing: {{samplingPercent: {percent}}}}}\n"
    )
    assert message.startswith("spec.tracing.samplingPercent: must be a number, is ")


def test_an_unknown_kind_is_refused_by_name():
    """Its likely meaning is offered; its key is not known."""
    (document,), _ = documents.load(
        "apiVersion: pilothouse.dev/v1alpha1\nkind: RouteRules\n", location="f.yaml"
    )
    _, (problem,) = codec.from_manifest(document, source="test")
    assert problem.message == "unknown kind 'RouteRules'; did you mean `RouteRule`?"
    assert problem.key is None
    assert mistakes("apiVersion: pilothouse.dev/v1alpha1\n") == ["kind: is required"]


def test_a_problem_names_the_object_when_its_name_could_be_read():
    """So that a store can tell a broken object from one that is gone."""
    (document,), _ = documents.load(
        "apiVersion: pilothouse.dev/v1alpha1\nkind: MeshConfig\nmetadata: {name: a}\nspec: 5\n",
        location="f.yaml",
    )
    _, (problem,) = codec.from_manifest(document, source="test")
    assert problem.key == keys.ObjectKey(kind="MeshConfig", namespace="default", name="a")
    assert problem.message == "spec: must be a mapping, is the number 5"


def test_only_derived_objects_may_have_origins():
    """Origins give a gateway the right to secrets of other namespaces."""
    text = """\
        apiVersion: pilothouse.dev/v1alpha1
        kind: MeshConfig
        metadata:
          name: a
          origins: [{apiVersion: networking.k8s.io/v1, kind: Ingress, namespace: b, name: c}]
        """
    assert mistakes(text) == [
        "metadata.origins: is set on derived objects only, by the source that derives them"
    ]
    config = configs.read(text, derived=True)
    assert config.meta.origins == (keys.ObjectKey(kind="Ingress", namespace="b", name="c"),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{apiVersion: pilothouse.dev/v1alpha1, kind: RouteRule}", True),
        ("{apiVersion: pilothouse.dev/v9, kind: Whatever}", True),
        ("{kind: RouteRule}", True),
        ("{apiVersion: v1, kind: Service}", False),
        ("{apiVersion: other.dev/v1, kind: RouteRule}", False),
        ("{a: b}", False),
    ],
)
def test_our_documents_are_told_from_others(text: str, *, expected: bool):
    """By the group; without one, by the kind."""
    (document,), _ = documents.load(text, location="f.yaml")
    assert codec.is_ours(document) is expected


def test_the_dump_is_what_kubernetes_would_show():
    """Fields in the order of the proto, values as people write them."""
    rule = configs.read(REVIEWS)
    assert codec.dump(rule) == textwrap.dedent(
        """\
        apiVersion: pilothouse.dev/v1alpha1
        kind: RouteRule
        metadata:
          name: reviews
          namespace: default
          generation: 1
        spec:
          parents:
          - service: reviews
          http:
          - name: testers
            matches:
            - headers:
              - name: x-user
                exact: jason
            destinations:
            - service: reviews
              labels:
                version: v2
          - name: everyone
            destinations:
            - service: reviews
              labels:
                version: v1
              weight: 75
            - service: reviews
              labels:
                version: v3
              weight: 0
            timeout: 1m30s
            retry:
              attempts: 2
              perTryTimeout: 500ms
              retryOn:
              - connect-failure
              - refused-stream
        """
    )


def test_a_duration_that_yaml_cannot_say_is_shown_all_the_same():
    """Another program may send one; validation refuses it, and its author wants to see it."""
    spec = destination_policy_pb2.DestinationPolicySpec(service="a")
    key = keys.ObjectKey(kind="DestinationPolicy", namespace="default", name="a")
    for nanos, shown in ((1, "0.000000001s"), (-500_000_000, "-0.500000000s")):
        spec.connect_timeout.nanos = nanos
        manifest = codec.to_manifest(codec.make(key, spec, source="test"))
        assert manifest["spec"]["connectTimeout"] == shown


def test_a_spec_of_another_kind_is_a_programmers_mistake():
    """It would be encoded as what it is not."""
    key = keys.ObjectKey(kind="RouteRule", namespace="default", name="a")
    with pytest.raises(TypeError, match="MeshGatewaySpec is no spec of RouteRule"):
        codec.make(key, mesh_gateway_pb2.MeshGatewaySpec(), source="test")


def test_what_cannot_be_read_does_not_hide_what_is_wrong_elsewhere() -> None:
    """What cannot be read in two routes does not hide the bad weights of the third."""
    text = """
apiVersion: pilothouse.dev/v1alpha1
kind: RouteRule
metadata: {name: x}
spec:
  parents: [{service: a}]
  http:
  - destinatons: []
  - timeout: 3 parsecs
    destinations: [{service: a}]
  - destinations: [{service: a, weight: 0}]
"""
    (document,), _ = documents.load(text, location="x.yaml")

    config, problems = codec.from_manifest(document, source="files")

    assert config is None
    fields = [one.message.split(": ")[0] for one in problems]
    assert fields[:2] == ["spec.http[0].destinatons", "spec.http[1].timeout"]
    assert any(field.startswith("spec.http[2].destinations") for field in fields)
    assert not any(field.startswith("spec.http[0].destinations") for field in fields)
