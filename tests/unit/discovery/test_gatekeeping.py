# SPDX-License-Identifier: Apache-2.0
"""Who is to blame for what the gate finds, and what a build makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pilothouse.config import accepted, admission, codec, documents, objects
from pilothouse.envoy.gate import findings, parts, sizes
from pilothouse.kubernetes import services as manifests
from pilothouse.model import keys, proxy
from pilothouse.rollout import trials
from pilothouse.xds import resources, types
from pilothouse_discovery import builder, gatekeeping, world

CDS, RDS = types.CLUSTER.type_url, types.ROUTE.type_url
NAMES = ("alpha", "beta", "gamma")
BAD = "/refused-by-the-gate"
SIDECAR = proxy.Proxy(
    id=proxy.NodeId(role=proxy.Role.SIDECAR, address="10.0.9.9", name="p", namespace="default")
)


def key(name: str) -> keys.ObjectKey:
    return keys.ObjectKey("RouteRule", "default", name)


def text(**paths: str) -> str:
    """Services, and a rule for each of these."""
    found = [
        f"apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: default}}\n"
        f"spec: {{selector: {{app: {name}}}, ports: [{{name: http, port: 80}}]}}\n"
        for name in NAMES
    ]
    found += [
        "apiVersion: pilothouse.dev/v1alpha1\nkind: RouteRule\n"
        f"metadata: {{name: {name}, namespace: default}}\n"
        f"spec: {{parents: [{{service: {name}}}], http: [{{matches: [{{path: {{exact: {path}}}}}],"
        f" destinations: [{{service: {name}}}]}}]}}\n"
        for name, path in paths.items()
    ]
    return "---\n".join(found)


def sources(**paths: str) -> world.Sources:
    found, problems = documents.load(text(**paths), location="test.yaml")
    assert not problems
    registry, mistakes = manifests.registry_state(found)
    assert not mistakes
    configs: dict[keys.ObjectKey, objects.Config] = {}
    for document in found:
        if document.manifest["apiVersion"] != "v1":
            config, _ = codec.from_manifest(document, source="store")
            assert config is not None
            configs[config.key] = config
    return world.Sources(
        authored={"store": objects.StoreState(configs=configs, synced=True)},
        derived={},
        registries={"registry": registry},
        secrets={},
    )


class Building:
    """A builder, and what became of its builds."""

    def __init__(self) -> None:
        self.alarms = 0
        self.store = accepted.AcceptedInMemory()
        self.builder = builder.Builder(
            domain="cluster.local", authored=("store",), store=self.store, alarm=self._alarmed
        )
        self.asked = (builder.Asked(proxy=SIDECAR, served=True),)

    def _alarmed(self) -> None:
        self.alarms += 1

    def build(self, *, somebody: bool = True, **paths: str) -> builder.Build:
        return self.builder.build(
            sources(**paths), traceparent="", asked=self.asked if somebody else ()
        )

    def routes(self) -> str:
        """What the proxy is given."""
        (told,) = self.builder.answers(self.asked)
        assert isinstance(told.answer, resources.Snapshot)
        return b"".join(one.body for one in told.answer.resources(RDS).values()).decode("latin-1")

    def in_force(self) -> dict[str, str]:
        """Name to path."""
        configs = self.store.current().configs
        return {k.name: _path(one.spec) for k, one in configs.items()}


def _path(spec: Any) -> str:
    return str(spec.http[0].matches[0].path.exact)


@pytest.fixture
def building(monkeypatch: pytest.MonkeyPatch) -> Building:
    """The gate finds fault with route configurations that hold some path."""
    real: Callable[..., Any] = parts.Inspector.broken

    def strict(self: parts.Inspector, resource: resources.Resource) -> Any:
        if BAD.encode() in resource.body:
            return (findings.Broken("virtual_hosts[1].routes[0]", "must not be like that"),)
        return real(self, resource)

    monkeypatch.setattr(parts.Inspector, "broken", strict)
    return Building()


def test_what_fails_the_gate_stays_as_it_was_and_the_rest_goes_out(building: Building) -> None:
    """As a whole object, with a condition that names resource, field and rule."""
    building.build(alpha="/a1", beta="/b1", gamma="/c1")
    made = building.build(alpha="/a2", beta=BAD, gamma="/c2")
    assert building.in_force() == {"alpha": "/a2", "beta": "/b1", "gamma": "/c2"}
    given = building.routes()
    assert all(path in given for path in ("/a2", "/b1", "/c2"))
    assert BAD not in given
    told = building.builder.conditions(made)[key("beta")][0]
    assert (told.status, told.reason) == (False, admission.NOT_PUBLISHABLE)
    assert told.message == (
        "RouteConfiguration http-proxy at virtual_hosts[1].routes[0]: must not be like that;"
        " generation 1 stays in force"
    )
    assert building.builder.conditions(made)[key("alpha")][0].status
    assert (made.faults, building.alarms) == (frozenset(), 0)


def test_what_never_passed_is_as_if_it_did_not_exist(building: Building) -> None:
    """Several at once, too; and fixed they come into force."""
    building.build(alpha=BAD, beta="/b1", gamma=BAD)
    assert building.in_force() == {"beta": "/b1"}
    building.build(alpha=BAD, beta="/b2", gamma="/c2")
    assert building.in_force() == {"beta": "/b2", "gamma": "/c2"}
    building.build(alpha="/a3", beta="/b3", gamma="/c3")
    assert building.in_force() == {"alpha": "/a3", "beta": "/b3", "gamma": "/c3"}


def test_what_another_object_made_wrong_has_another_chance(
    building: Building, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When any object changes, and only then: two together are too much for the gate here."""

    def together(_: parts.Inspector, resource: resources.Resource) -> Any:
        both = b"/a2" in resource.body and b"/b2" in resource.body
        return (findings.Broken("", "must not hold both"),) if both else ()

    monkeypatch.setattr(parts.Inspector, "broken", together)
    building.build(alpha="/a1", beta="/b1")
    building.build(alpha="/a2", beta="/b1")
    building.build(alpha="/a2", beta="/b2")
    assert building.in_force() == {"alpha": "/a2", "beta": "/b1"}
    building.build(alpha="/a2", beta="/b2")
    assert building.in_force() == {"alpha": "/a2", "beta": "/b1"}
    building.build(alpha="/a3", beta="/b2")
    assert building.in_force() == {"alpha": "/a3", "beta": "/b2"}


def test_who_comes_later_is_given_what_is_right_and_has_the_rest_looked_at(
    building: Building,
) -> None:
    """The gate looks for those who are there; what a newcomer needs is found when it comes."""
    building.build(somebody=False, alpha="/a1", beta=BAD)
    assert building.in_force() == {"alpha": "/a1", "beta": BAD}
    assert building.routes() == ""  # all rules are in one route configuration
    assert building.alarms == 1
    building.build(alpha="/a1", beta=BAD)
    assert building.in_force() == {"alpha": "/a1"}
    assert "/a1" in building.routes()
    assert building.alarms == 1


def test_what_nobody_is_to_blame_for_is_left_out_and_told(
    building: Building, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is held, it stays wrong: objects stay in force, and nothing goes round."""

    def hopeless(_: parts.Inspector, resource: resources.Resource) -> Any:
        return (findings.Broken("", "is hopeless"),) if resource.type_url == RDS else ()

    monkeypatch.setattr(parts.Inspector, "broken", hopeless)
    made = building.build(alpha="/a1", beta="/b1")
    assert building.in_force() == {"alpha": "/a1", "beta": "/b1"}
    assert {fault.rule for fault in made.faults} == {"is hopeless"}
    assert building.routes() == ""
    assert building.alarms == 0


def test_what_somebody_else_decided_meanwhile_is_decided_from(
    building: Building, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build that comes too late for the store is made again."""
    building.build(alpha="/a1")
    keep: Any = building.store.keep
    (refused,) = sources(alpha="/a2").authored["store"].configs.values()
    refusal = admission.Refusal.of(refused, reason=admission.REFUSED_BY_PROXY, message="no")
    others = [
        admission.AcceptedSet(
            configs=building.store.current().configs, refusals={refused.key: refusal}
        )
    ]

    def late(decided: admission.AcceptedSet, **more: Any) -> Any:
        if others:
            keep(others.pop(), **more)
        return keep(decided, **more)

    monkeypatch.setattr(building.store, "keep", late)
    building.build(alpha="/a2")
    assert building.in_force() == {"alpha": "/a1"}


def test_suspects_are_what_changed_or_else_all() -> None:
    """An object that somebody needs for the first time may be an old one."""
    before = sources(alpha="/a1", beta="/b1").authored["store"].configs
    now = sources(alpha="/a2", beta="/b1").authored["store"].configs
    fault = findings.Fault(
        type_url=CDS, name="c", path="", rule="no", origins=(key("alpha"), key("beta"), key("gone"))
    )
    faults = frozenset({fault})
    assert gatekeeping.suspects(faults, before=before, now=now) == {key("alpha")}
    assert gatekeeping.suspects(faults, before=now, now=now) == {key("alpha"), key("beta")}


def test_the_gate_is_asked_within_the_bound_of_a_search() -> None:
    """Each question is a build."""
    now = sources(**dict.fromkeys(NAMES, BAD)).authored["store"].configs
    fault = findings.Fault(type_url=CDS, name="c", path="", rule="no", origins=tuple(now))
    asked: list[frozenset[keys.ObjectKey]] = []

    def attempt(held: frozenset[keys.ObjectKey]) -> gatekeeping.Faults:
        asked.append(held)
        return frozenset() if key("beta") in held else frozenset({fault})

    found = gatekeeping.blame(frozenset({fault}), before={}, now=now, attempt=attempt)
    assert [one.key for one in found] == [key("beta")]
    assert len(asked) <= trials.bound(len(NAMES), 1)


def test_a_large_resource_is_counted(building: Building, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it is there; it goes out all the same."""
    monkeypatch.setattr(sizes, "ALARM", 500)
    building.build(alpha="/a1")
    assert "/a1" in building.routes()
    count = building.build(alpha="/a1").large
    assert count >= 1
    long = "/" + "a" * 600
    building.build(alpha="/a1", beta=long)
    assert long in building.routes()
