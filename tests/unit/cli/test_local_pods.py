# SPDX-License-Identifier: Apache-2.0
"""From manifests to the programs of a mesh on one machine."""

from typing import Any

from pilothouse.cli.local import addresses, pods

BLOCK = addresses.Block(number=40)


def _manifest(body: dict[str, Any]) -> pods.Manifest:
    return pods.Manifest(location="shop.yaml:1", directory="/shop", body=body)


def _deployment(name: str, **spec: Any) -> pods.Manifest:
    container = {
        "name": "app",
        "command": ["python3", "app.py"],
        "ports": [{"containerPort": 9080}],
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    body = {
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }
    return _manifest(body)


def test_a_deployment_has_as_many_pods_as_replicas() -> None:
    """Each replica is a pod of its own, with addresses of its own."""
    planned, problems = pods.plan([_deployment("reviews", replicas=2)], BLOCK)

    assert problems == ()
    assert [pod.name for pod in planned] == ["reviews-0", "reviews-1"]
    assert len({pod.address for pod in planned} | {pod.application_address for pod in planned}) == 4


def test_the_order_of_manifests_changes_nothing() -> None:
    """Addresses follow the names, not the order of files."""
    one, other = _deployment("a"), _deployment("b")

    assert pods.plan([one, other], BLOCK) == pods.plan([other, one], BLOCK)


def test_a_program_calls_through_its_sidecar() -> None:
    """The proxy variables name the sidecar; what the manifest sets wins over what is set here."""
    (pod,), _ = pods.plan([_deployment("reviews")], BLOCK)

    assert dict(pod.environment)["HTTP_PROXY"] == f"http://{pod.address}:15001"
    assert dict(pod.environment)["BIND_ADDRESS"] == pod.application_address


def test_a_pod_without_sidecar_keeps_its_fixed_address() -> None:
    """A program outside the mesh is where its annotation says, and calls through no sidecar."""
    body = {
        "kind": "Pod",
        "metadata": {
            "name": "partner",
            "annotations": {pods.INJECT: "false", pods.ADDRESS: "127.9.9.9"},
        },
        "spec": {"containers": [{"command": ["serve"]}]},
    }

    (pod,), _ = pods.plan([_manifest(body)], BLOCK)

    assert (pod.address, pod.application_address) == ("127.9.9.9", "127.9.9.9")
    assert not pod.sidecar
    assert "HTTP_PROXY" not in dict(pod.environment)


def test_what_cannot_be_run_is_told_and_the_rest_runs() -> None:
    """One bad manifest costs itself only; each problem names file, object and reason."""
    no_command = _manifest(
        {"kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [{"image": "x"}]}}
    )
    stateful = _manifest({"kind": "StatefulSet", "metadata": {"name": "db"}})
    bad = _deployment("many", replicas="three")

    planned, problems = pods.plan([no_command, stateful, bad, _deployment("ok")], BLOCK)

    assert [pod.name for pod in planned] == ["ok-0"]
    assert len(problems) == 3
    assert any("Pod default/x: no container has a command" in problem for problem in problems)
    assert any("Deployment default/many: spec.replicas" in problem for problem in problems)


def test_a_running_pod_is_told_as_kubernetes_would() -> None:
    """The manifest of a running pod has its address and is ready."""
    (pod,), _ = pods.plan([_deployment("reviews")], BLOCK)

    manifest = pod.manifest()

    assert manifest["status"]["podIP"] == pod.address
    assert {"type": "Ready", "status": "True"} in manifest["status"]["conditions"]


def test_two_objects_of_one_name_are_one_program() -> None:
    """The first counts, as it does for discovery, which tells of the second."""
    first, second = _deployment("reviews"), _deployment("reviews", replicas=3)

    planned, problems = pods.plan([first, second], BLOCK)

    assert [pod.name for pod in planned] == ["reviews-0"]
    assert problems == ()


def test_pods_that_stay_keep_their_addresses() -> None:
    """A new pod takes a free place, even when its name comes first."""
    before, _ = pods.plan([_deployment("b"), _deployment("c")], BLOCK)

    after, _ = pods.plan([_deployment("a"), _deployment("c")], BLOCK, before=before)

    named = {pod.name: pod for pod in (*before, *after)}
    assert named["c-0"] in before
    assert named["a-0"].address == named["b-0"].address
    assert named["a-0"].address != named["c-0"].address


def test_what_is_no_list_or_mapping_harms_nobody() -> None:
    """A manifest may hold anything; what is unusable is told or left out, never an exception."""
    odd = [
        _manifest({"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": "x"}}),
        _manifest({"kind": "Pod", "metadata": {"name": "b"}, "spec": []}),
        _manifest(
            {
                "kind": "Pod",
                "metadata": {"name": "c"},
                "spec": {"containers": [{"command": ["x"], "args": 1, "env": {}, "ports": [80]}]},
            }
        ),
        _manifest({"kind": "Pod", "metadata": None}),
        _manifest({"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": 7}}),
        _manifest({"kind": "Ingress", "spec": {"rules": 5}}),
        _manifest({"kind": ["Pod"]}),
    ]

    planned, problems = pods.plan(odd, BLOCK)

    assert [(pod.name, pod.command, pod.ports) for pod in planned] == [("c-local", ("x",), ())]
    assert len(problems) == 4
    assert pods.hosts(odd) == ()


def test_a_fixed_address_must_be_of_this_machine() -> None:
    """A program is run here, so it can listen nowhere else."""
    body = {
        "kind": "Pod",
        "metadata": {"name": "far", "annotations": {pods.ADDRESS: "10.0.0.1"}},
        "spec": {"containers": [{"command": ["serve"]}]},
    }

    planned, problems = pods.plan([_manifest(body)], BLOCK)

    assert planned == ()
    assert problems == (
        "shop.yaml:1: Pod default/far: pilothouse.dev/address: must be an address 127.x.y.z",
    )
