# SPDX-License-Identifier: Apache-2.0
"""From sources to one state."""

import itertools

from pilothouse.api.config.v1alpha1 import route_rule_pb2
from pilothouse.config import admission, codec, objects
from pilothouse.model import keys, secrets, services
from pilothouse_discovery import world


def _rule(name: str, *, source: str, service: str = "reviews") -> objects.Config:
    spec = route_rule_pb2.RouteRuleSpec(
        parents=[route_rule_pb2.ParentReference(service=service)],
        http=[route_rule_pb2.HttpRoute(name="all")],
    )
    return codec.make(keys.ObjectKey("RouteRule", "default", name), spec, source=source)


def _store(*configs: objects.Config, synced: bool = True) -> objects.StoreState:
    return objects.StoreState(configs={one.key: one for one in configs}, synced=synced)


def _assemble(sources: world.Sources) -> world.World:
    return world.assemble(sources, previous=admission.AcceptedSet(), domain="cluster.local")


def test_an_authored_object_wins_over_a_derived_one() -> None:
    """Both exist under one key: the author's is used, and the object says so."""
    mine, theirs = _rule("a", source="files"), _rule("a", source="ingress", service="other")
    built = _assemble(
        world.Sources(
            authored={"files": _store(mine)}, derived={"ingress": _store(theirs)}, registries={}
        )
    )

    assert built.state.configs[mine.key] == mine
    assert any(one.type == "Duplicated" for one in built.conditions[mine.key])


def test_sources_that_have_not_been_read_are_named() -> None:
    """A state says what it does not know yet."""
    built = _assemble(
        world.Sources(
            authored={"files": _store()},
            derived={"ingress": _store(synced=False)},
            registries={"registry": services.RegistryState(synced=False)},
        )
    )

    assert built.state.unsynced == {"ingress", "registry"}


def test_the_order_of_objects_changes_nothing() -> None:
    """Equal sources give equal states."""
    rules = [_rule(name, source="files") for name in "abc"]
    built = [
        _assemble(world.Sources(authored={"files": _store(*order)}, derived={}, registries={}))
        for order in itertools.permutations(rules)
    ]

    assert all(one == built[0] for one in built)
    assert [key.name for key in built[0].state.configs] == ["a", "b", "c"]


def test_endpoints_of_one_service_in_two_registries_are_joined() -> None:
    """A service may have endpoints on several platforms; the result is sorted."""
    key = keys.ServiceKey("default", "reviews")
    service = services.Service(key=key, ports=(services.Port(number=80),))
    one, other = (services.Endpoint(address=a, port=80) for a in ("10.0.0.2", "10.0.0.1"))
    registries = {
        "first": services.RegistryState(
            services={key: service}, endpoints={key: (one,)}, synced=True
        ),
        "second": services.RegistryState(
            services={key: service}, endpoints={key: (other,)}, synced=True
        ),
    }

    built = _assemble(world.Sources(authored={}, derived={}, registries=registries))

    assert built.state.endpoints == {key: (other, one)}


def test_an_object_that_turns_bad_stays_in_force_as_it_was() -> None:
    """A bad edit harms nobody: the last accepted generation goes on."""
    good = _rule("a", source="files")
    bad = codec.make(good.key, route_rule_pb2.RouteRuleSpec(), source="files", generation=2)
    first = _assemble(world.Sources(authored={"files": _store(good)}, derived={}, registries={}))

    second = world.assemble(
        world.Sources(authored={"files": _store(bad)}, derived={}, registries={}),
        previous=first.accepted,
        domain="cluster.local",
    )

    assert second.state.configs[good.key] == good
    (accepted,) = [one for one in second.conditions[good.key] if one.type == "Accepted"]
    assert not accepted.status
    assert "parents" in accepted.message


def test_what_secrets_are_for_is_known_and_nothing_else_of_them() -> None:
    """Once everything has been read: before, a missing one may be on its way."""
    key, other = secrets.SecretKey("default", "a"), secrets.SecretKey("default", "b")
    held = {
        key: secrets.TlsSecret(key=key, certificate_chain=b"chain", private_key=b"key"),
        other: secrets.TlsSecret(key=other, authorities=b"signers"),
    }

    def built(*, synced: bool) -> world.World:
        return _assemble(
            world.Sources(
                authored={"files": _store(synced=synced)}, derived={}, registries={}, secrets=held
            )
        )

    assert built(synced=True).state.secrets == {key, secrets.AuthorityKey(other)}
    assert built(synced=False).state.secrets is None
    assert b"chain" not in repr(built(synced=True)).encode()
