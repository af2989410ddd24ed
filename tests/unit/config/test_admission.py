# SPDX-License-Identifier: Apache-2.0
"""Which generation of each object is in force."""

import pytest
from hypothesis import given, strategies

from pilothouse.api.config.v1alpha1 import (
    destination_policy_pb2,
    external_service_pb2,
    mesh_config_pb2,
    mesh_gateway_pb2,
)
from pilothouse.config import admission, codec, conflicts, objects, validation
from pilothouse.model import keys

EMPTY = admission.AcceptedSet()


def external(
    name: str, *hosts: str, generation: int = 1, created: int = 0, labels: keys.Labels = ()
) -> objects.Config:
    """An ExternalService; without hosts it is invalid."""
    spec = external_service_pb2.ExternalServiceSpec(
        hosts=hosts, ports=[external_service_pb2.ExternalPort(number=443)]
    )
    key = keys.ObjectKey(kind="ExternalService", namespace="default", name=name)
    return codec.make(
        key, spec, source="test", generation=generation, created=created, labels=labels
    )


def by_key(*made: objects.Config) -> dict[keys.ObjectKey, objects.Config]:
    return {config.key: config for config in made}


def in_force(outcome: admission.Admission) -> dict[str, int]:
    """Name and generation of what is in force."""
    return {key.name: config.meta.generation for key, config in outcome.accepted.configs.items()}


def told(outcome: admission.Admission) -> dict[str, str]:
    """What each object is told, as ``STATUS REASON: MESSAGE``."""
    return {
        key.name: f"{condition.status} {condition.reason}: {condition.message}"
        for key, (condition,) in outcome.conditions.items()
        if condition.type == "Accepted"
    }


def test_what_is_right_is_in_force():
    """And is told so."""
    outcome = admission.admit(EMPTY, by_key(external("b", "b.com"), external("a", "a.com")))
    assert in_force(outcome) == {"a": 1, "b": 1}
    assert told(outcome) == {"a": "True Accepted: ", "b": "True Accepted: "}
    assert list(outcome.accepted.configs) == sorted(outcome.accepted.configs)


def test_what_is_wrong_from_the_start_is_not_in_force_and_harms_nobody():
    """It is told every violation."""
    outcome = admission.admit(EMPTY, by_key(external("a", "*.a", "b:1"), external("b", "b.com")))
    assert in_force(outcome) == {"b": 1}
    assert told(outcome)["a"] == (
        "False InvalidSpec: spec.hosts[0]: must be a host name without a wildcard, is '*.a';"
        " spec.hosts[1]: must be a host name without a port, is 'b:1'; it is not in force"
    )


def test_what_went_wrong_stays_at_its_last_accepted_generation():
    """As a whole object, for as long as it is wrong."""
    first = admission.admit(EMPTY, by_key(external("a", "a.com", generation=3)))
    second = admission.admit(first.accepted, by_key(external("a", generation=4)))
    third = admission.admit(second.accepted, by_key(external("a", generation=5)))
    assert in_force(second) == in_force(third) == {"a": 3}
    assert told(third)["a"] == (
        "False InvalidSpec: spec.hosts: at least one is required; generation 3 stays in force"
    )
    fourth = admission.admit(third.accepted, by_key(external("a", "b.com", generation=6)))
    assert in_force(fourth) == {"a": 6}


def test_what_is_gone_goes():
    """And what comes back wrong has no past."""
    first = admission.admit(EMPTY, by_key(external("a", "a.com")))
    gone = admission.admit(first.accepted, {})
    assert (in_force(gone), told(gone)) == ({}, {})
    back = admission.admit(gone.accepted, by_key(external("a")))
    assert in_force(back) == {}


def test_an_object_made_anew_does_not_inherit_from_its_namesake():
    """Whether the deletion between them was seen must not matter."""
    first = admission.admit(EMPTY, by_key(external("a", "a.com", created=1)))
    again = admission.admit(first.accepted, by_key(external("a", created=2)))
    assert in_force(again) == {}


def test_the_loser_of_a_conflict_stays_as_it_was():
    """The host that it wanted in addition is not its, the one that it had still is."""
    old = external("a", "a.com", created=1)
    first = admission.admit(EMPTY, by_key(old, external("b", "b.com", created=2)))
    wants = external("b", "a.com", "b.com", generation=2, created=2)
    third = external("c", "b.com", created=3)
    second = admission.admit(first.accepted, by_key(old, wants, third))
    assert in_force(second) == {"a": 1, "b": 1}
    assert told(second)["b"] == (
        "False Conflicted: host a.com is taken by ExternalService/default/a;"
        " generation 1 stays in force"
    )
    assert told(second)["c"] == (
        "False Conflicted: host b.com is taken by ExternalService/default/b; it is not in force"
    )


def test_the_older_object_takes_what_a_younger_one_had():
    """Age decides, not who came first: every replica must come to the same answer."""
    first = admission.admit(
        EMPTY, by_key(external("a", "a.com", created=1), external("b", "b.com", created=2))
    )
    second = admission.admit(
        first.accepted,
        by_key(
            external("a", "a.com", "b.com", generation=2, created=1),
            external("b", "b.com", created=2),
        ),
    )
    assert in_force(second) == {"a": 2}


def test_an_invalid_object_keeps_its_claims():
    """It is in force as it was, so what it was counts."""
    first = admission.admit(EMPTY, by_key(external("a", "a.com")))
    second = admission.admit(
        first.accepted, by_key(external("a", generation=2), external("b", "a.com"))
    )
    assert in_force(second) == {"a": 1}
    assert "is taken by ExternalService/default/a" in told(second)["b"]


def test_an_object_whose_text_cannot_be_read_is_not_gone():
    """It stays as it was; one that never was in force is told what is wrong."""
    first = admission.admit(EMPTY, by_key(external("a", "a.com", generation=2)))
    problems = [
        objects.Problem(location="f:2", message="spec: no", key=external("a").key),
        objects.Problem(location="f:1", message="kind: no", key=external("a").key),
        objects.Problem(location="f:3", message="spec: no", key=external("b").key),
        objects.Problem(location="f:4", message="is not YAML"),
    ]
    second = admission.admit(first.accepted, {}, problems=problems)
    assert in_force(second) == {"a": 2}
    assert told(second) == {
        "a": "False Unreadable: f:1: kind: no; f:2: spec: no; generation 2 stays in force",
        "b": "False Unreadable: f:3: spec: no; it is not in force",
    }
    # The same key elsewhere could be read: there is an object, and it counts.
    third = admission.admit(
        second.accepted, by_key(external("a", "b.com", generation=3)), problems=problems
    )
    assert in_force(third) == {"a": 3}
    assert told(third)["a"] == "True Accepted: "


def test_a_mesh_config_that_nobody_asks_is_not_in_force():
    """And is told which one is asked."""
    key = keys.ObjectKey(kind="MeshConfig", namespace="default", name="default")
    config = codec.make(key, mesh_config_pb2.MeshConfigSpec(), source="test")
    outcome = admission.admit(EMPTY, by_key(config))
    assert in_force(outcome) == {}
    assert outcome.conditions[key][0].reason == "NotUsed"


def test_an_unchanged_object_is_not_validated_again(monkeypatch: pytest.MonkeyPatch):
    """Also when it is another value that is equal; but changed labels have rules too."""
    asked: list[str] = []
    validate = validation.validate

    def counted(config: objects.Config):
        asked.append(config.key.name)
        return validate(config)

    monkeypatch.setattr(validation, "validate", counted)
    first = admission.admit(EMPTY, by_key(external("a", "a.com"), external("b")))
    second = admission.admit(first.accepted, by_key(external("a", "a.com"), external("b")))
    assert asked == ["a", "b"]
    assert second == first
    broken = external("a", "a.com", labels=(("-", ""),))
    third = admission.admit(second.accepted, by_key(broken, external("b")))
    assert asked == ["a", "b", "a"]
    assert told(third)["a"].startswith("False InvalidSpec: metadata.labels[-]")


def test_without_verdicts_the_answer_is_the_same():
    """They are a memory, no part of what is in force."""
    observed = by_key(external("a", "a.com"), external("b"))
    first = admission.admit(EMPTY, observed)
    restored = admission.AcceptedSet(configs=first.accepted.configs)
    assert restored == first.accepted
    assert admission.admit(restored, observed) == first


_NAMES = strategies.sampled_from(["a", "b", "c"])
_HOSTS = strategies.lists(strategies.sampled_from(["a.com", "B.com", "b.com", "*"]), max_size=2)
_META = strategies.fixed_dictionaries(
    {"generation": strategies.integers(1, 3), "created": strategies.integers(0, 2)}
)


def _make(kind: str, name: str, spec: object, meta: dict[str, int]) -> objects.Config:
    key = keys.ObjectKey(kind=kind, namespace="default", name=name)
    return codec.make(key, spec, source="test", **meta)  # type: ignore[arg-type]


_EXTERNALS = strategies.builds(
    lambda name, hosts, meta: external(name, *hosts, **meta), _NAMES, _HOSTS, _META
)
_POLICIES = strategies.builds(
    lambda name, service, meta: _make(
        "DestinationPolicy",
        name,
        destination_policy_pb2.DestinationPolicySpec(service=service),
        meta,
    ),
    _NAMES,
    strategies.sampled_from(["", "s", "t"]),
    _META,
)
_GATEWAYS = strategies.builds(
    lambda name, selector, port, meta: _make(
        "MeshGateway",
        name,
        mesh_gateway_pb2.MeshGatewaySpec(
            selector=selector,
            listeners=[
                mesh_gateway_pb2.Listener(
                    name="l",
                    port=port,
                    protocol=mesh_gateway_pb2.Listener.PROTOCOL_HTTP,
                ),
                mesh_gateway_pb2.Listener(
                    name="m",
                    port=443,
                    protocol=mesh_gateway_pb2.Listener.PROTOCOL_HTTPS,
                    tls=mesh_gateway_pb2.ListenerTls(
                        certificates=[mesh_gateway_pb2.SecretReference(secret="s")]
                    ),
                ),
            ],
        ),
        meta,
    ),
    _NAMES,
    strategies.sampled_from([{"a": "b"}, {"a": "b", "c": "d"}, {"a": "c"}, {}]),
    strategies.sampled_from([80, 443]),
    _META,
)
_WORLDS = strategies.lists(_EXTERNALS | _POLICIES | _GATEWAYS, max_size=8).map(
    lambda made: by_key(*made)
)
_HISTORIES = strategies.lists(_WORLDS, min_size=1, max_size=3)


@given(_HISTORIES, strategies.randoms(use_true_random=False))
def test_the_order_of_the_objects_decides_nothing(
    history: list[dict[keys.ObjectKey, objects.Config]], shuffle: object
):
    """The same worlds in any order lead to the same outcome, down to the order of its items."""
    straight = turned = admission.Admission(accepted=EMPTY, conditions={})
    for world in history:
        items = list(world.items())
        shuffle.shuffle(items)  # type: ignore[attr-defined]
        straight = admission.admit(straight.accepted, world)
        turned = admission.admit(turned.accepted, dict(items))
        assert straight == turned
        assert list(straight.accepted.configs) == list(turned.accepted.configs)
        assert list(straight.conditions) == list(turned.conditions) == sorted(world)


@given(_HISTORIES)
def test_what_is_in_force_is_valid_free_of_conflicts_and_stable(
    history: list[dict[keys.ObjectKey, objects.Config]],
):
    """Whatever happened before; and looking again changes nothing."""
    outcome = admission.Admission(accepted=EMPTY, conditions={})
    for world in history:
        outcome = admission.admit(outcome.accepted, world)
        accepted = outcome.accepted.configs
        assert all(validation.validate(config) == () for config in accepted.values())
        assert conflicts.cross_check(accepted) == {}
        assert accepted.keys() <= world.keys()
        for key, (condition,) in outcome.conditions.items():
            assert condition.status == (accepted.get(key) == world[key])
        assert admission.admit(outcome.accepted, world) == outcome
