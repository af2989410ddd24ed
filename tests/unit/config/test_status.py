# SPDX-License-Identifier: Apache-2.0
"""Statuses as objects carry them."""

from pilothouse.api.status.v1alpha1 import status_pb2
from pilothouse.config import codec, objects, status
from pilothouse.model import keys
from tests.support import configs


def condition(name: str, *, ok: bool, reason: str = "R", message: str = "") -> objects.Condition:
    return objects.Condition(type=name, status=ok, reason=reason, message=message)


def test_conditions_are_sorted_by_type_and_say_which_generation_they_speak_of():
    """As the comments of the proto demand."""
    made = status.status(
        [condition("ResolvedRefs", ok=True), condition("Accepted", ok=False, message="m")],
        generation=3,
    )
    assert made == status_pb2.Status(
        observed_generation=3,
        conditions=[
            status_pb2.Condition(
                type="Accepted", status="False", reason="R", message="m", observed_generation=3
            ),
            status_pb2.Condition(
                type="ResolvedRefs", status="True", reason="R", observed_generation=3
            ),
        ],
    )
    assert not made.HasField("proxies")


def test_of_several_conditions_of_one_type_the_bad_ones_are_told():
    """False is bad news of Accepted, True of a warning; the order of arrival decides nothing."""
    refs = [
        condition("ResolvedRefs", ok=False, reason="B", message="two"),
        condition("ResolvedRefs", ok=True, reason="A", message="fine"),
        condition("ResolvedRefs", ok=False, reason="B", message="one"),
        condition("ResolvedRefs", ok=False, reason="B", message="one"),
    ]
    expected = condition("ResolvedRefs", ok=False, reason="B", message="one; two")
    assert status.merged(refs) == status.merged(reversed(refs)) == expected
    warnings = [condition("Shadowed", ok=False), condition("Shadowed", ok=True, message="by x")]
    assert status.merged(warnings) == condition("Shadowed", ok=True, message="by x")


def test_a_message_is_cut_where_kubernetes_would_refuse_it():
    """A status that cannot be written tells nobody anything."""
    made = status.status([condition("Accepted", ok=False, message="x" * 40_000)], generation=1)
    assert len(made.conditions[0].message) == 32_768


def test_a_reference_names_the_group_that_the_kind_is_of():
    """And leads back to the key."""
    key = keys.ObjectKey(kind="Ingress", namespace="default", name="a")
    assert status.reference(key).api_version == "networking.k8s.io/v1"
    assert status.key_of(status.reference(key)) == key
    ours = keys.ObjectKey(kind="RouteRule", namespace="default", name="a")
    assert status.reference(ours).api_version == "pilothouse.dev/v1alpha1"
    unknown = keys.ObjectKey(kind="Whatever", namespace="default", name="a")
    assert status.reference(unknown).api_version == ""


def test_an_object_status_names_its_object():
    """With the counts of proxies when there are any."""
    key = keys.ObjectKey(kind="RouteRule", namespace="default", name="a")
    counts = status_pb2.ProxyCounts(needed=3, acked=2)
    made = status.object_status(key, [], generation=1, counts=counts)
    assert (made.object.kind, made.object.name) == ("RouteRule", "a")
    assert made.status.proxies == counts


def test_the_manifest_shows_the_status_with_its_zeros():
    """No proxy refused it, and that is worth telling."""
    config = configs.with_spec("DestinationPolicy", "service: a")
    made = status.status(
        [condition("Accepted", ok=True, reason="Accepted")],
        generation=1,
        counts=status_pb2.ProxyCounts(needed=2),
    )
    manifest = codec.to_manifest(config, status=made)
    assert list(manifest) == ["apiVersion", "kind", "metadata", "spec", "status"]
    assert manifest["status"] == {
        "observedGeneration": 1,
        "conditions": [
            {
                "type": "Accepted",
                "status": "True",
                "reason": "Accepted",
                "message": "",
                "observedGeneration": 1,
            }
        ],
        "proxies": {"needed": 2, "acked": 0, "refused": 0},
    }
    assert configs.read(codec.dump(config, status=made)) == config
