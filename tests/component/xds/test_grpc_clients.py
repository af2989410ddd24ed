# SPDX-License-Identifier: Apache-2.0
"""A real gRPC client without a proxy: same registry, same rules as a sidecar has.

It is a process of its own with a channel to ``xds:///...``, and talks to the real discovery. One
is grpcio's; the other is that of @grpc/grpc-js-xds, where it is installed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pilothouse.model import proxy
from tests.support import fleet, grpc_application, waiting
from tests.support.grpc_application import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="module")
TARGET = "xds:///app:80"


class Mesh:
    """One service of two versions, with two pods of the first, and an application that calls it."""

    def __init__(
        self, made: fleet.Fleet, client: grpc_application.Application, ports: dict[str, int]
    ) -> None:
        self.fleet = made
        self.client = client
        self.ports = ports

    async def hold(self, *pods: str, rule: str = "") -> None:
        """Let these pods exist, under this rule."""
        listed = [
            fleet.pod("app", name.partition("-")[0], self.ports[name], suffix=name[-1])
            for name in pods
        ]
        await self.fleet.apply({"pods.yaml": fleet.join(*listed), "rule.yaml": rule}, wait=False)

    async def reached(self, *names: str, target: str = TARGET) -> None:
        """Wait until the calls of a client reach these and no others."""

        async def done() -> bool:
            outcome = await self.client.call(target, 20)
            assert (set(outcome.replies), outcome.failures) == (set(names), ())
            return True

        await waiting.eventually(done, 45, what=f"{names} are reached")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=list(grpc_application.PROGRAMS))
async def mesh(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Mesh]:
    """Discovery, three backends, and the client, of one implementation or another."""
    environment = grpc_application.environment_of(request.param)
    if environment is None:
        pytest.skip(f"{grpc_application.NODE_MODULES} does not say where grpc-js-xds is")
    async with contextlib.AsyncExitStack() as stack:
        names = ("v1-0", "v1-1", "v2-0")
        ports = {
            name: await stack.enter_async_context(grpc_application.backend(name)) for name in names
        }
        made = await stack.enter_async_context(fleet.fleet({"app.yaml": fleet.service("app")}))
        await made.start()
        client = await stack.enter_async_context(
            grpc_application.application(
                made.grpc,
                tmp_path_factory.mktemp("grpc"),
                environment=environment,
                program=grpc_application.PROGRAMS[request.param],
            )
        )
        yield Mesh(made, client, ports)


def _shares(outcome: Outcome) -> dict[str, float]:
    total = sum(outcome.replies.values())
    return {name: count / total for name, count in outcome.replies.items()}


@pytest.mark.parametrize("host", ["app", "app.default", "app.default.svc.cluster.local"])
@pytest.mark.parametrize("port", ["", ":80"])
async def test_a_service_is_dialled_by_any_of_its_names(mesh: Mesh, host: str, port: str) -> None:
    """With and without its port, which is that of http URLs."""
    await mesh.hold("v1-0", "v2-0")
    await mesh.reached("v1-0", "v2-0", target=f"xds:///{host}{port}")


async def test_weights_are_kept(mesh: Mesh) -> None:
    """80 to 20, give or take five standard deviations of 500 calls."""
    await mesh.hold("v1-0", "v2-0", rule=fleet.rule("app", {"v1": 80, "v2": 20}))
    await mesh.reached("v1-0", "v2-0")

    async def split() -> bool:
        outcome = await mesh.client.call(TARGET, 500)
        assert outcome.failures == ()
        assert _shares(outcome)["v2-0"] == pytest.approx(0.2, abs=0.09)
        return True

    await waiting.eventually(split)


async def test_a_changed_rule_is_followed_without_a_failure(mesh: Mesh) -> None:
    """All to the first version, all to the second, and back, while calls flow."""
    await mesh.hold("v1-0", "v2-0", rule=fleet.rule("app", {"v1": 1}))
    await mesh.reached("v1-0")
    await mesh.client.flow(TARGET)
    for version in ("v2", "v1", "v2"):
        await mesh.hold("v1-0", "v2-0", rule=fleet.rule("app", {version: 1}))
        await mesh.reached(f"{version}-0")
    outcome = await mesh.client.stop()
    assert outcome.failures == ()
    assert set(outcome.replies) == {"v1-0", "v2-0"}


async def test_an_endpoint_that_goes_gets_nothing_more(mesh: Mesh) -> None:
    """And one that comes gets its share, while calls flow without a failure."""
    await mesh.hold("v1-0", "v1-1")
    await mesh.reached("v1-0", "v1-1")
    await mesh.client.flow(TARGET)
    await mesh.hold("v1-1")
    await mesh.reached("v1-1")
    await mesh.hold("v1-0", "v1-1")
    await mesh.reached("v1-0", "v1-1")
    assert (await mesh.client.stop()).failures == ()


async def test_headers_choose_a_route(mesh: Mesh) -> None:
    """As metadata of the call; an inverted test holds for a call without the header too."""
    await mesh.hold(
        "v1-0",
        "v2-0",
        rule="""
apiVersion: pilothouse.dev/v1alpha1
kind: RouteRule
metadata: {name: app}
spec:
  parents: [{service: app}]
  http:
  - matches: [{path: {prefix: /test.Backend}, headers: [{name: x-user, exact: jason}]}]
    destinations: [{service: app, labels: {version: v2}}]
  - matches: [{path: {prefix: /nobody}}, {method: GET}]
    destinations: [{service: app, labels: {version: v2}}]
  - matches: [{path: {prefix: /test.Backend}}]
    destinations: [{service: app, labels: {version: v1}}]
""",
    )

    async def chosen() -> bool:
        # One of them alone may come about without the rule, while one endpoint is not connected.
        for user, endpoint in (("jason", "v2-0"), ("jasonne", "v1-0")):
            outcome = await mesh.client.call(TARGET, 20, {"x-user": user})
            assert outcome == Outcome(replies={endpoint: 20})
        return True

    await waiting.eventually(chosen)


async def test_grpc_routes_choose_by_service_and_method(mesh: Mesh) -> None:
    """They are for gRPC, so they take the calls before an HTTP route for the same path does."""
    await mesh.hold(
        "v1-0",
        "v2-0",
        rule="""
apiVersion: pilothouse.dev/v1alpha1
kind: RouteRule
metadata: {name: app}
spec:
  parents: [{service: app}]
  http:
  - matches: [{path: {exact: /test.Backend/Name}}]
    directResponse: {status: 503}
  grpc:
  - matches: [{service: test.Backend, method: Other}]
    destinations: [{service: app, labels: {version: v1}}]
  - matches: [{service: test.Backend, method: Name}]
    destinations: [{service: app, labels: {version: v2}}]
""",
    )

    async def chosen() -> bool:
        outcome = await mesh.client.call(TARGET, 20)
        assert outcome == Outcome(replies={"v2-0": 20})
        return True

    await waiting.eventually(chosen)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("directResponse: {status: 503}", "UNAVAILABLE"),
        ("directResponse: {status: 403}", "PERMISSION_DENIED"),
        ("redirect: {scheme: https}", "UNKNOWN"),
    ],
)
async def test_an_answer_is_a_failure(mesh: Mesh, answer: str, status: str) -> None:
    """The status is the one that gRPC makes of the answer of a sidecar."""
    route = fleet.rule("app", {}).replace("  - destinations:\n", f"  - {answer}\n")
    await mesh.hold("v1-0", rule=route)

    async def refused() -> bool:
        outcome = await mesh.client.call(TARGET, 5)
        assert outcome.replies == {}
        assert all(text.startswith(status) for text in outcome.failures)
        return True

    await waiting.eventually(refused)


async def test_a_share_that_leads_nowhere_fails_at_once(mesh: Mesh) -> None:
    """And the others go on: nobody waits for a cluster that does not exist."""
    spec = "    - {service: nobody, weight: 50}\n"
    await mesh.hold("v1-0", rule=fleet.rule("app", {"v1": 50}) + spec)

    async def half() -> bool:
        outcome = await mesh.client.call(TARGET, 40)
        assert set(outcome.replies) == {"v1-0"}
        assert outcome.failures
        assert all(text.startswith("UNAVAILABLE") for text in outcome.failures)
        return True

    await waiting.eventually(half, 5)


async def test_nothing_was_refused(mesh: Mesh) -> None:
    """All that discovery says is to the client's taste."""
    await mesh.hold("v1-0")
    await mesh.reached("v1-0")
    clients = mesh.fleet.discovery.clients.proxies
    assert clients, "each target that is dialled has a stream of its own"
    for client in clients:
        assert client.proxy.id.role is proxy.Role.GRPC
        assert client.refusals == {}
        await waiting.eventually(functools.partial(getattr, client, "in_sync"))


async def test_p38_a_target_that_does_not_exist_fails_with_our_words(
    mesh: Mesh, tmp_path: Path
) -> None:
    """At once, for a client that heeds resource errors (gRFC A88)."""
    heeds = {"GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING": "true"}
    async with grpc_application.application(
        mesh.fleet.grpc, tmp_path, name="heeding", environment=heeds
    ) as client:
        outcome = await client.call("xds:///nobody:80")
    assert outcome.replies == {}
    assert "does not exist" in outcome.failures[0]


async def test_faults_are_injected_by_the_client_itself(mesh: Mesh) -> None:
    """With the status that the rule says."""
    await mesh.hold(
        "v1-0",
        rule=fleet.rule("app", {"v1": 1}, more=["fault: {abort: {grpcStatus: DATA_LOSS}}"]),
    )

    async def aborted() -> bool:
        outcome = await mesh.client.call(TARGET, 5)
        assert outcome.replies == {}
        assert all(text.startswith("DATA_LOSS") for text in outcome.failures)
        return True

    await waiting.eventually(aborted)


async def test_faults_for_some_leave_others_alone(mesh: Mesh) -> None:
    """Those whose headers the fault asks for are aborted; gRPC itself would abort all (A33)."""
    fault = "fault: {abort: {grpcStatus: DATA_LOSS}, headers: [{name: x-user, exact: jason}]}"
    await mesh.hold("v1-0", rule=fleet.rule("app", {"v1": 1}, more=[fault]))

    async def some() -> bool:
        jason = await mesh.client.call(TARGET, 5, {"x-user": "jason"})
        assert jason.replies == {}
        assert all(text.startswith("DATA_LOSS") for text in jason.failures)
        others = await mesh.client.call(TARGET, 5, {"x-user": "ann"})
        assert (others.replies, others.failures) == ({"v1-0": 5}, ())
        return True

    await waiting.eventually(some)


async def test_equal_keys_reach_the_same_endpoint(mesh: Mesh) -> None:
    """A policy's ring of hashes, by a header: one user stays, many are spread."""
    spec = "loadBalancer: {policy: RING_HASH, hashBy: [{header: x-user}]}"
    await mesh.fleet.apply({"policy.yaml": fleet.policy("app", spec)}, wait=False)
    await mesh.hold("v1-0", "v1-1")

    async def sticky() -> bool:
        seen = set()
        for user in range(12):
            outcome = await mesh.client.call(TARGET, 6, {"x-user": f"user-{user}"})
            assert (len(outcome.replies), outcome.failures) == (1, ())
            seen.update(outcome.replies)
        assert seen == {"v1-0", "v1-1"}
        return True

    try:
        await waiting.eventually(sticky, 45)
    finally:
        await mesh.fleet.apply({"policy.yaml": None}, wait=False)
