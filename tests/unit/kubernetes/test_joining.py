# SPDX-License-Identifier: Apache-2.0
"""Records that come, change and go amount to what they would if they had all come at once."""

from __future__ import annotations

import textwrap

import hypothesis
import pytest
from hypothesis import strategies

from pilothouse.config import documents
from pilothouse.kubernetes import endpoints, joining, records
from pilothouse.model import keys, services


def record(text: str) -> records.Record:
    """The record of one manifest."""
    (document,), problems = documents.load(textwrap.dedent(text), location="test")
    assert not problems
    found, problems = records.read(document)
    assert found is not None, problems
    return found


def service(name: str, selector: str = "{app: web}", port: int = 80) -> records.Record:
    """A service of the namespace ``shop``."""
    return record(f"""
        apiVersion: v1
        kind: Service
        metadata: {{name: {name}, namespace: shop}}
        spec: {{selector: {selector}, ports: [{{name: http, port: {port}, targetPort: serve}}]}}
    """)


def pod(
    name: str, address: str, labels: str = "{app: web}", port: int = 8080, phase: str = "Running"
) -> records.Record:
    """A pod of the namespace ``shop``."""
    return record(f"""
        apiVersion: v1
        kind: Pod
        metadata: {{name: {name}, namespace: shop, labels: {labels}}}
        spec: {{containers: [{{name: a, ports: [{{name: serve, containerPort: {port}}}]}}]}}
        status: {{phase: {phase}, podIP: {address}}}
    """)


def slice_(name: str, of: str, address: str, pod_name: str = "") -> records.Record:
    """A slice with one endpoint, without a port number, so that the pod must be asked."""
    target = f", targetRef: {{kind: Pod, name: {pod_name}}}" if pod_name else ""
    return record(f"""
        apiVersion: discovery.k8s.io/v1
        kind: EndpointSlice
        metadata: {{name: {name}, namespace: shop, labels: {{kubernetes.io/service-name: {of}}}}}
        addressType: IPv4
        ports: [{{name: http}}]
        endpoints: [{{addresses: [{address}]{target}}}]
    """)


VARIANTS = (
    service("web"),
    service("web", "{app: web, tier: front}"),
    service("web", "{}"),
    service("db", "{app: db}", port=81),
    service("db", "{app: web}"),
    pod("a", "10.0.0.1"),
    pod("a", "10.0.0.1", "{app: web, tier: front}", port=9000),
    pod("a", "10.0.0.2", "{app: db}"),
    pod("a", "10.0.0.1", phase="Succeeded"),
    pod("b", "10.0.0.2"),
    pod("b", "10.0.0.1", port=9001),
    slice_("s1", "web", "10.0.0.1"),
    slice_("s1", "db", "10.0.0.2", "b"),
    slice_("s2", "web", "10.0.0.2", "a"),
    slice_("s2", "web", "10.0.0.1", "b"),
)
KEYS = sorted({one.key for one in VARIANTS})
STEPS = strategies.lists(
    strategies.lists(
        strategies.one_of(
            strategies.sampled_from([(one.key, one) for one in VARIANTS]),
            strategies.sampled_from([(key, None) for key in KEYS]),
        ),
        max_size=4,
    ),
    max_size=12,
)


@hypothesis.given(STEPS)
def test_any_way_leads_to_the_same_state(
    steps: list[list[tuple[keys.ObjectKey, records.Record | None]]],
) -> None:
    """After each step the state is that of the present records alone, order included."""
    joined = joining.Join()
    present: dict[keys.ObjectKey, records.Record] = {}
    for step in steps:
        changed = dict(step)
        joined.update(changed)
        for key, one in changed.items():
            present.pop(key, None)
            if one is not None:
                present[key] = one
        anew = joining.Join()
        anew.update(present)
        assert joined.state == anew.state
        assert list(joined.state.services) == sorted(anew.state.services)
        assert list(joined.state.endpoints) == sorted(anew.state.endpoints)
        names = [(one.namespace, one.name) for one in joined.state.workloads]
        assert names == sorted(names)


@pytest.fixture
def worked_out(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the services whose endpoints were worked out, in order."""
    found: list[str] = []
    original = endpoints.of

    def of(
        record: records.ServiceRecord,
        *,
        slices: list[records.SliceRecord],
        pods: endpoints.Pods,
    ) -> tuple[services.Endpoint, ...]:
        found.append(record.key.name)
        return original(record, slices=slices, pods=pods)

    monkeypatch.setattr(endpoints, "of", of)
    return found


MANY = {
    one.key: one
    for number in range(100)
    for one in (
        service(f"s{number:02}", f"{{app: a{number}}}"),
        slice_(f"s{number:02}", f"s{number:02}", f"10.1.0.{number}", f"p{number:02}"),
        pod(f"p{number:02}", f"10.1.0.{number}", f"{{app: a{number}}}"),
    )
}


@pytest.mark.parametrize(
    "changed",
    [
        service("s07", "{app: a7}", port=81),
        slice_("s07", "s07", "10.1.1.7"),
        pod("p07", "10.1.0.7", "{app: a7}", port=8081),
    ],
    ids=["service", "slice", "pod"],
)
def test_one_changed_record_costs_what_it_reaches(
    changed: records.Record, worked_out: list[str]
) -> None:
    """Of a hundred services one is looked at, and the others keep their very values."""
    joined = joining.Join()
    joined.update(MANY)
    before = joined.state
    worked_out.clear()
    joined.update({changed.key: changed})
    assert worked_out == ["s07"]
    assert joined.state != before
    for key, found in before.endpoints.items():
        if key.name != "s07":
            assert joined.state.endpoints[key] is found
    if changed.key.kind != "Service":
        assert joined.state.services is before.services
    assert joined.state.workloads is before.workloads


def test_an_equal_record_changes_nothing(worked_out: list[str]) -> None:
    """A record that was read anew and is equal leaves the state as the same object."""
    joined = joining.Join()
    joined.update(MANY)
    before = joined.state
    worked_out.clear()
    joined.update(
        {one.key: one for one in (service("s07", "{app: a7}"), pod("p07", "10.1.0.7", "{app: a7}"))}
    )
    joined.update({})
    assert joined.state is before
    assert worked_out == []
