# SPDX-License-Identifier: Apache-2.0
"""What config sources are served: made anew only where something is different."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from pilothouse.api.config.v1alpha1 import route_rule_pb2
from pilothouse.api.status.v1alpha1 import status_pb2
from pilothouse.config import codec, objects
from pilothouse.model import keys
from pilothouse.rollout import ledger
from pilothouse.xds import types
from pilothouse_discovery import statuses, views

URL = types.OBJECT_STATUS.type_url


def state(
    name: str, *, source: str = "ingress", origins: tuple[str, ...] = (), acked: int = 1
) -> statuses.ObjectState:
    return statuses.ObjectState(
        key=keys.ObjectKey("RouteRule", "default", name),
        generation=1,
        source=source,
        origins=tuple(keys.ObjectKey("RouteRule", "default", one) for one in origins),
        conditions=(objects.Condition(type="Accepted", status=True, reason="Accepted"),),
        counts=ledger.Counts(needed=1, acked=acked),
    )


def states(*several: statuses.ObjectState) -> Mapping[keys.ObjectKey, statuses.ObjectState]:
    return {one.key: one for one in several}


def test_a_source_is_told_of_its_own_and_of_what_those_come_from() -> None:
    """Of no other, and by name."""
    view = views.StatusView()
    found = states(
        state("mine", origins=("origin", "gone")),
        state("origin", source="files"),
        state("other", source="egress"),
    )
    layer = view.layer(found, source="ingress")
    assert list(layer.resources(URL)) == ["RouteRule/default/mine", "RouteRule/default/origin"]
    told = layer.get(URL, "RouteRule/default/mine")
    assert told is not None
    assert status_pb2.ObjectStatus.FromString(told.body).status.proxies.acked == 1
    assert list(view.layer(found, source="egress").resources(URL)) == ["RouteRule/default/other"]


def test_only_what_changed_is_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal states are the same resources, and if all are, it is the same layer."""
    view = views.StatusView()
    encoded: list[str] = []
    real = views.encode_status

    def encode(one: statuses.ObjectState) -> bytes:
        encoded.append(one.key.name)
        return real(one)

    monkeypatch.setattr(views, "encode_status", encode)
    many = [state(f"r{number}") for number in range(100)]
    before = view.layer(states(*many), source="ingress")
    encoded.clear()
    equal = [dataclasses.replace(one) for one in many]
    assert view.layer(states(*equal), source="ingress") is before
    assert encoded == []
    equal[7] = state("r7", acked=0)
    after = view.layer(states(*equal), source="ingress")
    assert encoded == ["r7"]
    same = [name for name, one in after.resources(URL).items() if before.get(URL, name) is one]
    assert len(same) == 99


def test_what_is_gone_is_forgotten() -> None:
    """A view does not grow with the objects that ever were."""
    view = views.StatusView()
    for number in range(50):
        view.layer(states(state(f"r{number}")), source="ingress")
    assert len(view._known) <= 2


def config(name: str, generation: int = 1) -> objects.Config:
    key = keys.ObjectKey("RouteRule", "default", name)
    spec = route_rule_pb2.RouteRuleSpec(hosts=[f"{name}{generation}.example"])
    return codec.make(key, spec, source="files", generation=generation)


def test_authored_objects_are_shown_as_they_are_whatever_came_and_went() -> None:
    """Changed, added, taken away or moved: nothing but the trace tells what was there before."""
    view = views.AuthoredView()
    for names in ("abcd", "abCd", "ab", "aBcd", "bcd", "", "Abcd"):
        now = [config(name.lower(), 1 + name.isupper()) for name in names]

        view.update(now, traceparent="")

        shown = {one.name: one.body for one in view.layer}
        assert shown == {codec.encode(one)[1]: codec.encode(one)[2] for one in now}


def test_an_authored_object_that_stays_keeps_its_resource() -> None:
    """So that nothing is sent of it, and the trace stays that of its own last change."""
    view = views.AuthoredView()
    view.update([config("a"), config("b")], traceparent="")
    before = view.layer
    (url,) = before.types

    view.update([config("a"), config("b")], traceparent="")
    assert view.layer is before

    for now in ([config("a", 2), config("b")], [config("b")], [config("b"), config("c")]):
        view.update(now, traceparent="")
        assert view.layer is not before
        name = codec.encode(config("b"))[1]
        assert view.layer.get(url, name) is before.get(url, name)
