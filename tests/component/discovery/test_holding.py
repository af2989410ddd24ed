# SPDX-License-Identifier: Apache-2.0
"""Who is to blame for a refusal, found and held over real gRPC; and how many responses that takes.

The clients refuse route configurations that hold a path with "bad" in it, without saying which
object that is. All rules of a mesh are in one route configuration, so each is a suspect.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

import pytest

from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.rollout import trials
from pilothouse.xds import types
from tests.component.discovery import conftest as support
from tests.support import waiting

NODES = [f"sidecar~10.0.9.{n}~client-{n}.default~cluster.local" for n in range(1, 4)]
RDS, CDS = types.ROUTE.type_url, types.CLUSTER.type_url
COUNT = 6
S4 = "outbound|80||s4.default"


def service(number: int) -> str:
    return (
        f"apiVersion: v1\nkind: Service\nmetadata: {{name: s{number}}}\n"
        f"spec: {{selector: {{app: s{number}}}, ports: [{{name: http, port: 80}}]}}\n"
    )


def rule(number: int, path: str) -> str:
    """A rule that is told from others by its path."""
    return (
        "apiVersion: pilothouse.dev/v1alpha1\nkind: RouteRule\n"
        f"metadata: {{name: s{number}}}\nspec:\n  parents: [{{service: s{number}}}]\n  http:\n"
        f"  - matches: [{{path: {{exact: /{path}}}}}]\n"
        f"    destinations: [{{service: s{number}}}]\n"
    )


@pytest.fixture
def mesh(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with some services, and a good rule for each."""
    (tmp_path / "services.yaml").write_text("---\n".join(map(service, range(COUNT))))
    write(tmp_path, *(f"old-{number}" for number in range(COUNT)))
    return tmp_path


def write(folder: pathlib.Path, *paths: str) -> None:
    """Change all rules at once."""
    text = "---\n".join(rule(number, path) for number, path in enumerate(paths))
    new = folder / "rules.new"
    new.write_text(text)
    new.replace(folder / "rules.yaml")


class Picky(support.Proxy):
    """Refuses what holds some text, and counts."""

    def __init__(self, address: str, node_id: str) -> None:
        super().__init__(address, node_id)
        self.dislikes: Callable[[str, bytes], bool] = lambda _url, body: b"/bad" in body
        self.words = "no such thing"
        self.refused = 0

    @property
    def responses(self) -> int:
        """How many route configurations arrived."""
        return self.order.count(RDS)

    async def _answer(self, response: discovery_pb2.DeltaDiscoveryResponse) -> None:
        url = response.type_url
        refuses = any(self.dislikes(url, one.resource.value) for one in response.resources)
        self.refused += refuses
        self.refuse = lambda _: self.words if refuses else ""
        await super()._answer(response)

    def paths(self) -> set[str]:
        """What is in its routes."""
        held = b"".join(self.resources.get(RDS, {}).values())
        every = [f"{kind}-{n}" for kind in ("old", "new", "bad", "fix") for n in range(COUNT)]
        return {path for path in every if f"/{path}".encode() in held}


@contextlib.asynccontextmanager
async def picky(
    running: support.Running,
    node: str = NODES[0],
    *,
    dislikes: Callable[[str, bytes], bool] | None = None,
) -> AsyncIterator[Picky]:
    """A client that holds its routes when the block begins, or refused them."""
    proxy = Picky(running.address, node)
    if dislikes is not None:
        proxy.dislikes = dislikes
    await proxy.open()
    task = asyncio.create_task(proxy.run())
    try:
        await waiting.eventually(lambda: proxy.names(types.LISTENER))
        await proxy.ask(RDS, "http-proxy")
        await waiting.eventually(lambda: proxy.responses)
        yield proxy
    finally:
        await proxy.close()
        await asyncio.wait((task,))


def expected(kind: str, *, bad: Collection[int] = (), instead: str = "old") -> set[str]:
    """The paths of all rules, those of the bad ones as they were."""
    return {f"{instead if n in bad else kind}-{n}" for n in range(COUNT)}


async def status(running: support.Running, number: int) -> Any:
    return (await running.statuses("RouteRule"))[f"s{number}"]


def condition(of: Any, kind: str) -> tuple[str, str, str]:
    """Status, reason and message."""
    (found,) = (one for one in of.conditions if one.type == kind)
    return found.status, found.reason, found.message


async def all_settled(
    running: support.Running, *, refused: Collection[int] = (), why: str = "NotAccepted"
) -> None:
    """Wait until each object's status is final, and every proxy in sync."""
    wanted = {f"s{n}": why if n in refused else "Programmed" for n in range(COUNT)}

    async def told() -> bool:
        found = await running.statuses("RouteRule")
        reasons = {name: condition(one, "Programmed")[1] for name, one in found.items()}
        assert reasons == wanted
        return all(client.in_sync for client in running.server.clients.proxies)

    await waiting.eventually(told)


@pytest.mark.parametrize(
    ("bad", "workers"), [({3}, 1), ({0, 5}, 1), (set(range(COUNT)), 1), ({2, 3}, 2)]
)
async def test_the_bad_ones_of_a_change_are_held_and_the_good_ones_come(
    mesh: pathlib.Path, bad: set[int], workers: int
) -> None:
    """Within the bound of the search; each bad one says who refused, and with what words."""
    async with support.serving(mesh, workers=workers) as running, picky(running) as proxy:
        await all_settled(running)
        before = proxy.responses
        write(mesh, *(f"{'bad' if n in bad else 'new'}-{n}" for n in range(COUNT)))
        await waiting.eventually(lambda: proxy.paths() == expected("new", bad=bad))
        await all_settled(running, refused=bad)
        for number in range(COUNT):
            accepted = condition(await status(running, number), "Accepted")
            if number in bad:
                words = f"{NODES[0]}: no such thing; generation 1 stays in force"
                assert accepted == ("False", "RefusedByProxy", words)
            else:
                assert accepted[0] == "True"
        # The change; the search; and for the fleet what the search has ended with.
        assert proxy.responses - before <= trials.bound(COUNT, len(bad)) + 2
        assert proxy.paths() == expected("new", bad=bad)


async def test_a_fixed_object_is_released(mesh: pathlib.Path) -> None:
    """It comes into force as soon as it is another one; nothing that is refused is sent again."""
    async with support.serving(mesh) as running, picky(running) as proxy:
        await all_settled(running)
        write(mesh, "bad-0", *(f"new-{n}" for n in range(1, COUNT)))
        await all_settled(running, refused={0})
        refused = proxy.refused
        write(mesh, "bad-0", *(f"fix-{n}" for n in range(1, COUNT)))
        await waiting.eventually(lambda: proxy.paths() == expected("fix", bad={0}))
        assert proxy.refused == refused
        write(mesh, *(f"fix-{n}" for n in range(COUNT)))
        await waiting.eventually(lambda: proxy.paths() == expected("fix"))
        await all_settled(running)
        assert proxy.refused == refused
        assert condition(await status(running, 0), "Accepted")[0] == "True"


async def test_an_object_that_never_was_accepted_is_left_out(mesh: pathlib.Path) -> None:
    """As if it did not exist."""
    write(mesh, *(f"old-{n}" for n in range(COUNT - 1)))
    async with support.serving(mesh) as running, picky(running) as proxy:
        old = expected("old") - {f"old-{COUNT - 1}"}
        await waiting.eventually(lambda: proxy.paths() == old)
        write(mesh, *(f"old-{n}" for n in range(COUNT - 1)), f"bad-{COUNT - 1}")
        await all_settled(running, refused={COUNT - 1})
        accepted = condition(await status(running, COUNT - 1), "Accepted")
        assert accepted[2] == f"{NODES[0]}: no such thing; it is not in force"
        assert proxy.paths() == old


async def test_what_was_there_at_the_start_is_left_out_for_those_that_refuse(
    mesh: pathlib.Path,
) -> None:
    """Others may have run it before, and would lose it with nothing in its place."""
    write(mesh, "bad-0", *(f"old-{n}" for n in range(1, COUNT)))
    async with support.serving(mesh) as running, picky(running) as proxy:
        await waiting.eventually(lambda: proxy.paths() == expected("old") - {"old-0"})
        await all_settled(running, refused={0}, why="Refused")
        assert condition(await status(running, 0), "Accepted")[0] == "True"
        assert proxy.responses <= trials.bound(COUNT, 1) + 2


async def test_an_odd_proxy_holds_nobody_back(mesh: pathlib.Path) -> None:
    """Others took the same: the object is in force, and says who refuses it, with what words.

    For the odd one it is held, and still so when it comes back.
    """
    async with (
        support.serving(mesh) as running,
        picky(running, NODES[1], dislikes=lambda *_: False) as plain,
        picky(running, NODES[2], dislikes=lambda *_: False) as other,
    ):
        async with picky(running) as odd:
            await all_settled(running)
            write(mesh, "bad-0", *(f"new-{n}" for n in range(1, COUNT)))
            await waiting.eventually(lambda: odd.paths() == expected("new", bad={0}))
            await all_settled(running, refused={0}, why="Refused")
            whole = {"bad-0"} | expected("new") - {"new-0"}
            assert plain.paths() == other.paths() == whole
            told = await status(running, 0)
            assert condition(told, "Accepted")[0] == "True"
            words = f"1 of 3 proxies refused it: {NODES[0]}: no such thing"
            assert condition(told, "Programmed") == ("False", "Refused", words)
            counts = told.proxies
            assert (counts.needed, counts.acked, counts.refused) == (3, 2, 1)
        async with picky(running) as again:
            await waiting.eventually(lambda: again.paths() == expected("new", bad={0}))
            await all_settled(running, refused={0}, why="Refused")
            assert again.refused == 0
        write(mesh, *(f"fix-{n}" for n in range(COUNT)))
        await waiting.eventually(lambda: plain.paths() == other.paths() == expected("fix"))
        await all_settled(running)


async def test_what_all_refuse_is_searched_on_one(mesh: pathlib.Path) -> None:
    """The others are sent the change, and then what was found."""
    async with (
        support.serving(mesh) as running,
        picky(running, NODES[0]) as one,
        picky(running, NODES[1]) as two,
        picky(running, NODES[2]) as three,
    ):
        await all_settled(running)
        all_of_them = (one, two, three)
        before = [each.responses for each in all_of_them]
        write(mesh, "bad-0", *(f"new-{n}" for n in range(1, COUNT)))
        good = expected("new", bad={0})
        await waiting.eventually(lambda: [each.paths() for each in all_of_them] == [good] * 3)
        await all_settled(running, refused={0})
        counts = sorted(
            each.responses - earlier for each, earlier in zip(all_of_them, before, strict=True)
        )
        assert counts[0] <= 3
        assert counts[1] <= 3
        assert counts[2] <= trials.bound(COUNT, 1) + 2
        assert condition(await status(running, 0), "Accepted")[1] == "RefusedByProxy"


async def test_who_refuses_whatever_is_held_blames_nobody(mesh: pathlib.Path) -> None:
    """It is asked once without the suspects, and then left alone; the objects stay in force."""
    async with support.serving(mesh) as running, picky(running) as proxy:
        await all_settled(running)
        before, proxy.dislikes = proxy.responses, lambda url, _: url == RDS
        write(mesh, *(f"new-{n}" for n in range(COUNT)))

        async def told() -> bool:
            found = await running.statuses("RouteRule")
            return all(condition(one, "Programmed")[1] == "Refused" for one in found.values())

        await waiting.eventually(told)
        assert proxy.paths() == expected("old")
        # The change, the trial without it, and the change again, which then stays.
        assert proxy.responses - before == 3
        for number in range(COUNT):
            assert condition(await status(running, number), "Accepted")[0] == "True"
        # The next build, of something else, is no reason to send it again.
        (mesh / "more.yaml").write_text(service(COUNT + 1).replace("port: 80", "port: 81"))
        more = f"outbound|81||s{COUNT + 1}.default"
        await waiting.eventually(lambda: more in proxy.names(types.CLUSTER))


async def test_words_that_name_a_resource_shorten_the_search(mesh: pathlib.Path) -> None:
    """One cluster of many is refused by name: its object is tried first."""
    async with support.serving(mesh) as running, picky(running) as proxy:
        await all_settled(running)
        good = proxy.resources[CDS][S4]
        proxy.dislikes = lambda url, body: url == CDS and S4.encode() in body and body != good
        proxy.words = f"Error adding/updating cluster(s) {S4}: no"
        before = proxy.order.count(CDS)
        policies = [
            "apiVersion: pilothouse.dev/v1alpha1\nkind: DestinationPolicy\n"
            f"metadata: {{name: s{n}}}\nspec: {{service: s{n}, "
            "connectionPool: {idleTimeout: 7s}}\n"
            for n in range(COUNT)
        ]
        (mesh / "policies.yaml").write_text("---\n".join(policies))

        async def told() -> bool:
            found = await running.statuses("DestinationPolicy")
            return {n for n, one in found.items() if condition(one, "Accepted")[0] == "False"} == {
                "s4"
            } and len(found) == COUNT

        await waiting.eventually(told)
        # The change, without all of them, with the named one, with the others.
        assert proxy.order.count(CDS) - before <= 5


async def test_when_nobody_is_to_blame_all_who_refuse_are_counted(mesh: pathlib.Path) -> None:
    """Also one that waited for what is found on another: its refusal counts from the end on."""
    async with (
        support.serving(mesh) as running,
        picky(running, NODES[0]) as first,
        picky(running, NODES[1]) as second,
    ):

        async def counts() -> tuple[int, int, int]:
            found: Any = (await running.statuses("RouteRule"))["s0"]
            return found.proxies.needed, found.proxies.acked, found.proxies.refused

        async def become(*expected: int) -> None:
            async def are() -> bool:
                return await counts() == expected

            await waiting.eventually(are, what=str(expected))

        await become(2, 2, 0)

        def slowly(url: str, _: bytes) -> bool:
            first.withhold.add(RDS)  # what is tried on it then
            return url == RDS

        first.dislikes, second.dislikes = slowly, lambda url, _: url == RDS
        second.withhold.add(RDS)
        write(mesh, *(f"new-{number}" for number in range(COUNT)))
        progress, clients = running.server.progress, running.server.clients
        await waiting.eventually(lambda: first._withheld and second._withheld)
        await second.release()
        await waiting.eventually(
            lambda: (
                all(one.refusals for one in clients.proxies if one.name == NODES[1])
                and not progress._moved
            ),
            what="the second waits",
        )
        first.dislikes = second.dislikes
        await first.release()
        await become(2, 0, 2)
