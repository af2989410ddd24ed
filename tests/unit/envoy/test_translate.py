# SPDX-License-Identifier: Apache-2.0
"""The translator: what is the same object again, what is forgotten, what is served."""

import copy
import gc
import pickle
import weakref

import pytest

from pilothouse.envoy import memo, translate
from pilothouse.model import secrets
from pilothouse.routing import plan
from pilothouse.xds import differences, resources, types
from tests.support import envoy_plans
from tests.support.envoy_plans import API_TLS, SHOP_TLS, forward, host, key, listener, route


def anew(proxy: plan.ProxyPlan) -> plan.ProxyPlan:
    """An equal plan that shares no object with the given one."""
    made: plan.ProxyPlan = pickle.loads(pickle.dumps(proxy))  # noqa: S301  our own
    assert made == proxy
    assert made is not proxy
    return made


def secret(name: secrets.SecretKey, text: str = "1") -> secrets.TlsSecret:
    return secrets.TlsSecret(
        key=name, certificate_chain=text.encode(), private_key=f"private {text}".encode()
    )


BOTH = {name: secret(name) for name in (SHOP_TLS, API_TLS)}


def bodies(snapshot: resources.Snapshot) -> dict[tuple[str, str], bytes]:
    return {(one.type_url, one.name): one.body for layer in snapshot.layers for one in layer}


@pytest.mark.parametrize("name", sorted(envoy_plans.CASES))
def test_equal_plans_give_equal_bytes(name: str):
    """Another process, other objects: the same bytes."""
    one, other = translate.Translator(), translate.Translator()
    proxy = envoy_plans.CASES[name]
    assert bodies(one.snapshot(proxy, BOTH)) == bodies(other.snapshot(anew(proxy), BOTH))


@pytest.mark.parametrize("name", sorted(envoy_plans.CASES))
def test_an_equal_plan_is_the_same_snapshot(name: str):
    """Not only equal: one object, whether the plan's parts are the old objects or new ones."""
    translator = translate.Translator()
    proxy = envoy_plans.CASES[name]
    first = translator.snapshot(proxy, BOTH)
    assert translator.snapshot(proxy, BOTH) is first
    assert translator.snapshot(anew(proxy), dict(BOTH)) is first
    translator.begin_generation()
    assert translator.snapshot(proxy, BOTH) is first
    translator.begin_generation()
    assert translator.snapshot(anew(proxy), {name: copy.copy(BOTH[name]) for name in BOTH}) is first


def gateway(*hosts: plan.VirtualHost) -> plan.Layer:
    return plan.Layer(
        clusters=(plan.Cluster(key=key("web")),),
        endpoints=(envoy_plans.assignment(key("web")),),
        route_configurations=(envoy_plans.routes("gateway|8080", *hosts),),
        listeners=(listener("gateway|8080"),),
    )


def test_a_change_leaves_everything_else_the_same_object():
    """One virtual host changes: its route configuration is new, all other resources are not."""
    translator = translate.Translator()
    kept, old, new = (
        host(name, route(forward(key("web"), timeout_ms=timeout)))
        for name, timeout in (("kept", 0), ("changed", 1), ("changed", 2))
    )
    other = plan.Layer(clusters=(plan.Cluster(key=key("other"), resolution="static"),))
    before = translator.snapshot(envoy_plans.proxy(gateway(kept, old), other), {})
    after = translator.snapshot(envoy_plans.proxy(gateway(kept, new), other), {})
    assert after.layers[1] is before.layers[1]
    for kind in (types.CLUSTER, types.ENDPOINT, types.LISTENER):
        for name, resource in after.layers[0].resources(kind.type_url).items():
            assert resource is before.layers[0].get(kind.type_url, name)
    difference = differences.diff(before, after, types.ROUTE.type_url)
    assert [each.name for each in difference.changed] == ["gateway|8080"]


def test_what_is_not_used_for_a_generation_is_forgotten():
    """Memory holds what is in use, and what was in use a moment ago."""
    translator = translate.Translator()
    gone = weakref.ref(translator.translate(gateway(host("gone", route(forward(key("web")))))))
    kept_layer = gateway(host("kept", route(forward(key("web")))))
    kept = translator.translate(kept_layer)
    translator.begin_generation()
    assert translator.translate(kept_layer) is kept
    translator.begin_generation()
    gc.collect()
    assert gone() is None
    assert translator.translate(kept_layer) is kept


def test_the_parts_of_a_layer_in_use_are_never_forgotten():
    """Only the whole was asked for, yet generations later a new layer finds the old one's parts."""
    translator = translate.Translator()
    old = host("old", route(forward(key("web"))))
    layer = gateway(old)
    before = translator.translate(layer)
    for _ in range(3):
        translator.begin_generation()
        gc.collect()
        assert translator.translate(layer) is before
    after = translator.translate(gateway(old, host("new", route(forward(key("web"))))))
    name = next(iter(before.resources(types.CLUSTER.type_url)))
    assert after.get(types.CLUSTER.type_url, name) is before.get(types.CLUSTER.type_url, name)


def test_a_memo_computes_once_for_equal_values_and_forgets_what_nobody_holds():
    """By identity, by value, and weakly."""
    asked: list[tuple[int, ...]] = []

    def compute(value: tuple[int, ...]) -> list[int]:
        asked.append(value)
        return list(value)

    table = memo.Memo(compute)
    value = (1, 2)
    equal = (*value[:1], 2)
    assert value is not equal
    entries = [table.entry(value), table.entry(value), table.entry(equal)]
    assert asked == [(1, 2)]
    assert entries[0] is entries[1]
    assert entries[0].result is entries[2].result
    assert len(table) == 1
    entries.clear()
    gc.collect()
    assert len(table) == 0


def test_entries_of_many_are_those_of_each():
    """Whether a memo knows a value or not, and after it has forgotten it."""
    asked: list[tuple[int, ...]] = []

    def compute(value: tuple[int, ...]) -> int:
        asked.append(value)
        return sum(value)

    table = memo.Memo(compute)
    values = [(number, 1) for number in range(5)]
    first = table.entry(values[2])
    found = table.entries(values)
    assert found[2] is first
    assert [entry.result for entry in found] == [1, 2, 3, 4, 5]
    assert all(one is other for one, other in zip(found, table.entries(values), strict=True))
    assert len(asked) == len(values)
    del first
    found.clear()
    gc.collect()
    assert [entry.result for entry in table.entries(values)] == [1, 2, 3, 4, 5]
    assert len(asked) == 2 * len(values)


def secure(*certificates: secrets.SecretKey, listed: tuple[secrets.SecretKey, ...] = ()):
    layer = plan.Layer(
        route_configurations=(envoy_plans.routes("gateway|8443"),),
        listeners=(
            listener("gateway|8443", certificates=certificates),
            listener("gateway|8080", route_configuration="gateway|8443"),
        ),
        certificates=listed or tuple(sorted(certificates)),
    )
    return envoy_plans.proxy(layer)


def certificates_of(snapshot: resources.Snapshot) -> tuple[list[str], list[str]]:
    """What is served, and what the TLS listener refers to."""
    held = snapshot.get(types.LISTENER.type_url, "gateway|8443")
    references = sorted(held.references) if held else []
    wanted = [name for url, name in references if url == types.SECRET.type_url]
    return list(snapshot.resources(types.SECRET.type_url)), wanted


def test_only_listed_certificates_are_given_out():
    """A secret that is there but not in the plan goes nowhere."""
    snapshot = translate.Translator().snapshot(secure(SHOP_TLS), BOTH)
    names = ["secret|default/shop-tls"]
    assert certificates_of(snapshot) == (names, names)


def test_a_missing_certificate_takes_nothing_from_its_neighbour():
    """The listener goes on with those that are there, and nothing is referred to in vain."""
    snapshot = translate.Translator().snapshot(secure(SHOP_TLS, API_TLS), {API_TLS: BOTH[API_TLS]})
    names = ["secret|default/api-tls"]
    assert certificates_of(snapshot) == (names, names)
    assert snapshot.missing_references() == ()


@pytest.mark.parametrize("held", [{}, {API_TLS: BOTH[API_TLS]}])
def test_a_listener_without_any_certificate_is_left_out(
    held: dict[secrets.SecretKey, secrets.TlsSecret],
):
    """It must not serve in the clear; the plain listener beside it stays."""
    snapshot = translate.Translator().snapshot(secure(SHOP_TLS), held)
    assert list(snapshot.resources(types.LISTENER.type_url)) == ["gateway|8080"]


def test_a_certificate_that_the_plan_does_not_list_counts_as_missing():
    """A listener cannot pull in what its proxy may not have."""
    snapshot = translate.Translator().snapshot(secure(SHOP_TLS, API_TLS, listed=(API_TLS,)), BOTH)
    names = ["secret|default/api-tls"]
    assert certificates_of(snapshot) == (names, names)


def test_a_renewed_certificate_changes_the_secret_alone():
    """Rotation is a new version of the same name; listeners are not touched."""
    translator = translate.Translator()
    proxy = secure(SHOP_TLS)
    before = translator.snapshot(proxy, BOTH)
    after = translator.snapshot(proxy, {SHOP_TLS: secret(SHOP_TLS, "2")})
    assert after.layers[0] is before.layers[0]
    assert [
        each.name for each in differences.diff(before, after, types.SECRET.type_url).changed
    ] == ["secret|default/shop-tls"]


def test_a_private_key_is_never_printed():
    """Not by the resource, the layer or the snapshot."""
    snapshot = translate.Translator().snapshot(secure(SHOP_TLS), BOTH)
    held = snapshot.resources(types.SECRET.type_url)["secret|default/shop-tls"]
    assert b"private 1" in held.body
    for each in (held, snapshot, *snapshot.layers, BOTH[SHOP_TLS]):
        assert "private 1" not in repr(each)


def test_two_resources_of_one_name_are_a_mistake_of_the_plan():
    """It is the planner's, so it is an exception that names them."""
    twice = plan.Layer(clusters=(plan.Cluster(key=key("web")), plan.Cluster(key=key("web"))))
    with pytest.raises(ValueError, match=r"outbound\|9080\|\|web.default"):
        translate.Translator().snapshot(envoy_plans.proxy(twice), {})


def test_a_layer_with_one_other_resource_is_what_it_would_be_alone():
    """Endpoints come, change and go: each layer has the bytes and versions of a new translator."""
    translator = translate.Translator()
    names = [f"s{number}" for number in range(6)]

    def assignments(*changed: str) -> plan.ProxyPlan:
        found = [
            envoy_plans.assignment(key(name), 1, *((2,) if name in changed else ()))
            for name in names
        ]
        return envoy_plans.proxy(plan.Layer(endpoints=tuple(found)))

    kept = []
    for changed in ((), ("s1",), ("s1", "s5"), ("s5",), (), ("s0", "s1", "s2", "s3")):
        translator.begin_generation()
        made = translator.snapshot(assignments(*changed), {})
        alone = translate.Translator().snapshot(assignments(*changed), {})
        assert bodies(made) == bodies(alone)
        assert made.version(types.ENDPOINT.type_url) == alone.version(types.ENDPOINT.type_url)
        if kept:
            base, replaced = made.layers[0].made_from or pytest.fail("made at once")
            assert base is kept[-1].layers[0]
            assert len(replaced) < len(names)
        kept.append(made)
    (changed,) = differences.diff(kept[2], kept[3], types.ENDPOINT.type_url).changed
    assert "s1." in changed.name
