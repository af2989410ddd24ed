# SPDX-License-Identifier: Apache-2.0
"""The gate as its users see it: snapshots in, findings and what may go out."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.config.endpoint.v3 import endpoint_pb2
from pilothouse.api.envoy.config.route.v3 import route_pb2
from pilothouse.envoy import names, translate
from pilothouse.envoy.gate import gate, parts, sizes
from pilothouse.model import keys
from pilothouse.xds import resources, types
from tests.support import envoy_plans

# Untyped, because the stubs do not know that a message may be written as a dictionary.
Cluster: Any = cluster_pb2.Cluster

RULE = keys.ObjectKey("RouteRule", "default", "reviews")
CDS, EDS, RDS = types.CLUSTER.type_url, types.ENDPOINT.type_url, types.ROUTE.type_url


def cluster(name: str, *, timeout: int = 1, needs: str = "") -> resources.Resource:
    """A cluster; with a timeout of 0 it breaks a constraint."""
    made = Cluster(name=name, connect_timeout={"seconds": timeout})
    references = ((EDS, needs),) if needs else ()
    return resources.Resource.of(
        CDS, name, made.SerializeToString(), references=references, origins=(RULE,)
    )


def endpoints(name: str) -> resources.Resource:
    made = endpoint_pb2.ClusterLoadAssignment(cluster_name=name)
    return resources.Resource.of(EDS, name, made.SerializeToString())


def routes(name: str, *to: str) -> resources.Resource:
    body = route_pb2.RouteConfiguration(name=name).SerializeToString()
    return resources.Resource.of(RDS, name, body, references=[(CDS, one) for one in to])


def snapshot(*layers: tuple[resources.Resource, ...]) -> resources.Snapshot:
    return resources.Snapshot.of(resources.Layer.of(each) for each in layers)


@pytest.mark.parametrize("case", sorted(envoy_plans.CASES))
def test_what_our_translators_make_passes(case: str) -> None:
    """Everything that is right goes out as it is: the same object, for Envoys and for gRPC."""
    plan = envoy_plans.CASES[case]
    made = translate.Translator().snapshot(plan, {})
    looked = gate.Gate()
    assert not looked.report(made).faults
    assert looked.passed(made) is made


def test_a_fault_names_resource_field_rule_and_origins() -> None:
    """As frozen values that people can read."""
    found = gate.Gate().report(snapshot((cluster("a"), cluster("b", timeout=0))))
    (fault,) = found.faults
    assert (fault.name, fault.path, fault.origins) == ("b", "connect_timeout", (RULE,))
    assert str(fault) == "Cluster b at connect_timeout: must be more than 0s"
    assert found.all == (fault,)


def test_what_is_wrong_is_left_out_and_its_neighbours_stay() -> None:
    """The layers without it are the same objects; so is the answer the next time."""
    made = snapshot((cluster("a"), cluster("b", timeout=0)), (endpoints("a"),))
    looked = gate.Gate()
    passed = looked.passed(made)
    assert set(passed.resources(CDS)) == {"a"}
    assert passed.layers[1] is made.layers[1]
    assert looked.passed(made) is passed


def test_a_reference_may_lead_into_another_layer() -> None:
    """And to the cluster that never exists, on purpose."""
    made = snapshot(
        (cluster("a", needs="a"),),
        (endpoints("a"), endpoints("b")),
        (routes("r", "a", names.UNRESOLVED),),
    )
    assert not gate.Gate().report(made)


def test_a_reference_that_leads_nowhere_is_told_and_goes_out() -> None:
    """What needs nothing of it works, so the resource is not left out."""
    made = snapshot((cluster("a"),), (routes("r", "a", "gone"),))
    looked = gate.Gate()
    (fault,) = looked.report(made).dangling
    assert (fault.name, fault.rule) == ("r", "refers to Cluster gone, which is not there")
    assert looked.passed(made) is made


def test_a_version_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many snapshots and layers hold it; what is new is looked at."""
    seen: list[str] = []
    real: Any = parts.Inspector.broken

    def looking(self: parts.Inspector, resource: resources.Resource) -> Any:
        seen.append(resource.name)
        return real(self, resource)

    monkeypatch.setattr(parts.Inspector, "broken", looking)
    looked = gate.Gate()
    shared, one, two = cluster("shared"), cluster("one"), cluster("two")
    layer = resources.Layer.of((shared,))
    looked.report(resources.Snapshot.of((layer, resources.Layer.of((one,)))))
    looked.report(resources.Snapshot.of((layer, resources.Layer.of((two,)))))
    looked.report(snapshot((shared, one, two)))
    assert seen == ["shared", "one", "two"]


def test_the_gate_keeps_nothing_alive() -> None:
    """Neither snapshots nor resources; so no other object is ever taken for one that was right."""
    looked = gate.Gate()
    made = snapshot((cluster("a"), cluster("b", timeout=0)), (routes("r", "a"),))
    passed = looked.passed(made)
    watched: list[weakref.ref[Any]] = [
        weakref.ref(made),
        weakref.ref(passed),
        weakref.ref(made.layers[0]),
    ]
    watched += [weakref.ref(one) for one in made.layers[0]]
    del made, passed
    gc.collect()
    assert [one() for one in watched] == [None] * len(watched)


def test_what_no_response_to_grpc_can_hold_is_left_out_for_grpc_only() -> None:
    """It would end the stream again and again; Envoy takes any size."""
    assignment = endpoint_pb2.ClusterLoadAssignment(cluster_name="x" * 4_000_000)
    large = resources.Resource.of(EDS, "large", assignment.SerializeToString())
    made = snapshot((large, endpoints("a")))
    looked = gate.Gate()
    assert looked.passed(made) is made
    assert set(looked.passed(made, grpc=True).resources(EDS)) == {"a"}
    assert looked.large(made) == (large,)
    (fault,) = looked.report(made, grpc=True).faults
    assert f"at most {sizes.GRPC_LIMIT} bytes" in fault.rule


def test_a_secret_is_never_told() -> None:
    """A finding has the name of the field and what must hold, nothing of its value."""
    wrong = resources.Resource.of(types.SECRET.type_url, "s", b"\x0a\x7fprivate-key")
    report = gate.Gate().report(snapshot((wrong,)))
    assert report.faults
    assert "private-key" not in repr(report)


REPLACEMENTS = (
    cluster("one"),
    cluster("one", timeout=0),
    cluster("one", needs="nowhere"),
    cluster("two", timeout=2),
    cluster("two", timeout=0),
    endpoints("two"),
)


@pytest.mark.parametrize("first", REPLACEMENTS, ids=range(len(REPLACEMENTS)))
@pytest.mark.parametrize("second", REPLACEMENTS, ids=range(len(REPLACEMENTS)))
def test_what_was_replaced_is_looked_at_and_its_neighbours_are_as_before(
    first: resources.Resource, second: resources.Resource
) -> None:
    """The same is said of a layer made from another as of one that was made at once."""
    looked = gate.Gate()
    layer = resources.Layer.of([cluster("one"), cluster("two", timeout=0, needs="two")])
    others = resources.Layer.of([endpoints("two")])
    for new in (None, first, second):
        if new is not None:
            side = layer if new.type_url == CDS else others
            old = side.get(new.type_url, new.name)
            assert old is not None
            made = side.replacing(((old, new),))
            layer, others = (made, others) if side is layer else (layer, made)
        present = resources.Snapshot.of((layer, others))
        anew = resources.Snapshot.of((resources.Layer.of(layer), resources.Layer.of(others)))
        assert looked.report(present) == gate.Gate().report(anew)
