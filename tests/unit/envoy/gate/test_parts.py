# SPDX-License-Identifier: Apache-2.0
"""A resource is checked by its bytes, and of a new version only what is new."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from google.protobuf import message
from hypothesis import given, strategies

from pilothouse.api.envoy.config.endpoint.v3 import endpoint_pb2
from pilothouse.api.envoy.config.route.v3 import route_components_pb2, route_pb2
from pilothouse.envoy.gate import constraints, findings, parts
from pilothouse.xds import resources, types

# Untyped, because the stubs do not know that a message may be written as a dictionary.
RouteConfiguration: Any = route_pb2.RouteConfiguration


def routes(*statuses: int, name: str = "r") -> resources.Resource:
    """A route configuration with one virtual host for each status that it answers."""
    made = RouteConfiguration(name=name)
    for number, status in enumerate(statuses):
        host = made.virtual_hosts.add(name=f"h{number}", domains=[f"h{number}"])
        one = host.routes.add()
        one.match.prefix = "/"
        one.direct_response.status = status
    return resources.Resource.of(types.ROUTE.type_url, name, made.SerializeToString())


@pytest.fixture(autouse=True)
def taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take small resources apart too."""
    monkeypatch.setattr(parts, "_SMALL", 0)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The types of what is looked into from now on, at the top."""
    seen: list[str] = []
    real = constraints.broken

    def looking(value: message.Message) -> tuple[findings.Broken, ...]:
        seen.append(value.DESCRIPTOR.name)
        return real(value)

    monkeypatch.setattr(constraints, "broken", looking)
    return seen


def test_only_what_changed_is_looked_at_again(parsed: list[str]) -> None:
    """One virtual host of three; the others were right."""
    inspector = parts.Inspector()
    first, second = routes(200, 201, 202), routes(200, 299, 202)
    assert inspector.broken(first) == ()
    assert parsed.count("VirtualHost") == 3
    parsed.clear()
    assert inspector.broken(second) == ()
    assert parsed.count("VirtualHost") == 1


@pytest.mark.parametrize("small", [0, 4096])
def test_what_is_wrong_is_told_each_time(monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    """The position is that in the whole resource, whether it was taken apart or not."""
    monkeypatch.setattr(parts, "_SMALL", small)
    inspector = parts.Inspector()
    for _ in range(2):
        (one,) = inspector.broken(routes(200, 600))
        assert one.path == "virtual_hosts[1].routes[0].direct_response.status"


def test_endpoints_are_looked_at_one_by_one(parsed: list[str]) -> None:
    """A changed address is one endpoint of its locality."""
    inspector = parts.Inspector()
    held = []
    for last in (3, 4):
        made = endpoint_pb2.ClusterLoadAssignment(cluster_name="c")
        group = made.endpoints.add()
        for number in (1, 2, last):
            address = group.lb_endpoints.add().endpoint.address.socket_address
            address.address, address.port_value = f"10.0.0.{number}", 80
        held.append(resources.Resource.of(types.ENDPOINT.type_url, "c", made.SerializeToString()))
        parsed.clear()
        assert inspector.broken(held[-1]) == ()
    assert parsed.count("LbEndpoint") == 1


def test_what_is_no_message_is_a_finding() -> None:
    """Whatever is wrong with the bytes."""
    for body in (b"\xff", b"\x12\x7fabc", b"\x12", b"\x0b"):
        wrong = resources.Resource.of(types.ROUTE.type_url, "r", body)
        (one,) = parts.Inspector().broken(wrong)
        assert one.rule == "must be a envoy.config.route.v3.RouteConfiguration"


def test_a_type_that_the_gate_does_not_know_passes() -> None:
    """Whoever asks for it knows more."""
    other = resources.Resource.of(types.RUNTIME.type_url, "r", b"\xff")
    assert parts.Inspector().broken(other) == ()


def test_nothing_is_kept_of_what_is_gone() -> None:
    """The memory of a resource goes with it."""
    inspector = parts.Inspector()
    one = routes(200)
    inspector.broken(one)
    assert len(inspector) == 1
    del one
    gc.collect()
    assert len(inspector) == 0


@given(
    strategies.lists(strategies.text(max_size=200), max_size=5),
    strategies.text(max_size=5),
    strategies.booleans(),
)
def test_what_is_taken_apart_is_all_there(hosts: list[str], name: str, ignore: bool) -> None:  # noqa: FBT001
    """The rest and the items make the message again, whatever their sizes."""
    made = RouteConfiguration(
        name=name,
        virtual_hosts=[{"name": each} for each in hosts],
        ignore_port_in_host_matching=ignore,
        max_direct_response_body_size_bytes={"value": 7},
    )
    rest, items = parts.take_apart(made.SerializeToString(), 2)
    again = RouteConfiguration.FromString(rest)
    assert not again.virtual_hosts
    again.virtual_hosts.extend(route_components_pb2.VirtualHost.FromString(one) for one in items)
    assert again == made


@pytest.mark.parametrize("size", [0, 123, 124, 125, 300, 16_378, 16_379, 16_380, 70_000])
def test_an_item_of_any_size_is_taken_whole_or_not_at_all(size: int) -> None:
    """Lengths take one byte to three; a message that ends within an item is none."""
    encoded = RouteConfiguration(
        virtual_hosts=[{"name": "x" * size}, {"name": "b"}]
    ).SerializeToString()
    rest, items = parts.take_apart(encoded, 2)
    assert rest == b""
    assert [route_components_pb2.VirtualHost.FromString(one).name for one in items] == [
        "x" * size,
        "b",
    ]
    first = len(encoded) - 5  # the second takes five bytes
    for end in (*range(1, min(first, 8)), first - 1, *range(first + 1, len(encoded))):
        with pytest.raises(message.DecodeError):
            parts.take_apart(encoded[:end], 2)


def joined(*statuses: int, name: str = "r") -> resources.Resource:
    """The same as `routes`, joined of its fields, in a part of its own each."""
    whole = RouteConfiguration.FromString(routes(*statuses, name=name).body)
    fields = [
        RouteConfiguration(name=name),
        *(RouteConfiguration(virtual_hosts=[one]) for one in whole.virtual_hosts),
    ]
    return resources.Resource.joined(
        types.ROUTE.type_url,
        name,
        [one.SerializeToString() for one in fields],
        references=(),
        origins=(),
    )


@given(
    strategies.lists(
        strategies.lists(strategies.sampled_from([200, 201, 600, 700]), max_size=5), max_size=5
    )
)
def test_what_is_joined_of_parts_is_checked_as_what_is_whole(versions: list[list[int]]) -> None:
    """Every version of a resource, whatever its parts were before."""
    inspector = parts.Inspector()
    held = []
    for statuses in versions:
        held.append(joined(*statuses))
        assert held[-1].body == routes(*statuses).body
        assert inspector.broken(held[-1]) == parts.Inspector().broken(routes(*statuses))


def test_parts_that_are_known_are_not_looked_into_again(parsed: list[str]) -> None:
    """One virtual host of three; what stands around them is looked at as one message."""
    inspector = parts.Inspector()
    first, second = joined(200, 201, 202), joined(200, 299, 202)
    assert inspector.broken(first) == ()
    parsed.clear()
    assert inspector.broken(second) == ()
    assert sorted(parsed) == ["RouteConfiguration", "VirtualHost"]


def test_a_part_that_is_no_message_is_a_finding() -> None:
    """As it is in what is whole."""
    wrong = resources.Resource.joined(
        types.ROUTE.type_url, "r", (b"\x12\x7fabc", b""), references=(), origins=()
    )
    (one,) = parts.Inspector().broken(wrong)
    assert one.rule == "must be a envoy.config.route.v3.RouteConfiguration"
