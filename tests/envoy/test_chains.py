# SPDX-License-Identifier: Apache-2.0
"""Which chain a connection gets, and what a change of one chain does to the connections of others.

Through a real Envoy, over xDS.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ssl
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pilothouse.routing import accepting, plan
from tests.support import certificates, envoy_plans, fleet, tcp_backends, wired

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]
PORT = 18081
NAMES = ("one", "two", "three", "four")


@dataclasses.dataclass(slots=True)
class World:
    """An Envoy, and backends that serve TLS themselves; and one in the clear, `plain`."""

    wired: wired.Wired
    backends: dict[str, tcp_backends.TcpBackend]

    async def choose(self, *choices: tuple[str, accepting.ChainMatch]) -> None:
        """Serve a port whose chains are passed through to the backends of their names."""
        names = sorted({name for name, _ in choices})
        keys = {name: envoy_plans.key(name) for name in self.backends}
        layer = plan.Layer(
            clusters=tuple(plan.Cluster(key=key) for key in keys.values()),
            endpoints=tuple(
                envoy_plans.assignment(key, self.backends[name].port) for name, key in keys.items()
            ),
            listeners=(
                plan.Listener(
                    name="chains",
                    direction=plan.Direction.INBOUND,
                    address=self.wired.envoy.address,
                    port=PORT,
                    chains=tuple(
                        plan.Chain(name=f"chains|{name}", serves=plan.Tcp(forward=name))
                        for name in names
                    ),
                    choices=tuple(
                        plan.Choice(match=match, chain=f"chains|{name}") for name, match in choices
                    ),
                ),
            ),
            tcp_forwards=tuple(
                plan.TcpForward(
                    name=name,
                    clusters=(plan.WeightedCluster(cluster=keys[name], weight=1),),
                )
                for name in names
            ),
        )
        await self.wired.give(layer)

    def stream(
        self, name: str | None = None, *, clear: bool = False, source: str | None = None
    ) -> contextlib.AbstractAsyncContextManager[tcp_backends.Stream]:
        """A connection through Envoy, with TLS unless `clear`, that asks for a server name."""
        tls = None
        if not clear:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        return tcp_backends.stream(
            self.wired.envoy.address,
            PORT,
            tls=tls,
            server_name=name,
            source=source,
            # In the clear nobody speaks until the first bytes are seen.
            before=b"hello\n" if clear else b"",
        )

    async def reached(
        self, name: str | None = None, *, clear: bool = False, source: str | None = None
    ) -> str:
        """The backend that such a connection reaches; empty when it is closed."""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            async with self.stream(name, clear=clear, source=source) as stream:
                return stream.name
        return ""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    """One Envoy for all tests of the module."""
    pair = certificates.make("example.com")
    async with contextlib.AsyncExitStack() as stack:
        backends = {
            name: await stack.enter_async_context(tcp_backends.tcp_backend(name, pair.server()))
            for name in NAMES
        }
        backends["plain"] = await stack.enter_async_context(tcp_backends.tcp_backend("plain"))
        yield World(await stack.enter_async_context(wired.wired()), backends)


def named(*names: str) -> accepting.ChainMatch:
    return accepting.ChainMatch(server_names=names)


ANY = accepting.ANY


async def test_server_names(world: World) -> None:
    """Exact ones in any case, wildcards of any number of labels, and the rest; the first wins."""
    await world.choose(
        ("one", named("a.example.com", "b.example.com")),
        ("two", named("*.sub.example.com")),
        ("one", named("*.example.com")),
        ("three", ANY),
    )
    assert await world.reached("a.example.com") == "one"
    assert await world.reached("B.EXAMPLE.com") == "one"
    assert await world.reached("x.sub.example.com") == "two"
    assert await world.reached("x.y.sub.example.com") == "two"
    assert await world.reached("sub.example.com") == "one"
    assert await world.reached("example.com") == "three"
    assert await world.reached(None) == "three"


async def test_whom_nobody_takes_is_closed(world: World) -> None:
    """Neither another name nor none, nor what is no TLS, gets a chain with server names."""
    await world.choose(("one", named("a.example.com")))
    assert await world.reached("b.example.com") == ""
    assert await world.reached(None) == ""
    assert await world.reached(clear=True) == ""
    assert await world.reached("a.example.com") == "one"


async def test_a_client_that_names_no_server(world: World) -> None:
    """It can be told from one that names a server that nobody has."""
    await world.choose(
        ("one", named("a.example.com")), ("two", accepting.ChainMatch(unnamed=True, tls=True))
    )
    assert await world.reached(None) == "two"
    assert await world.reached("b.example.com") == ""
    assert await world.reached(clear=True) == ""


async def test_the_order_is_that_of_the_plan(world: World) -> None:
    """A small network does not come before a name that is asked for first: Envoy's own order, by
    which it would, is not used; and a chain that fits in part only gives way to the next."""
    here = accepting.ChainMatch(destinations=(f"{world.wired.envoy.address}/32",))
    await world.choose(
        ("one", named("a.example.com")),
        ("two", here),
        ("three", ANY),
    )
    assert await world.reached("a.example.com") == "one"
    assert await world.reached("b.example.com") == "two"
    elsewhere = dataclasses.replace(named("a.example.com"), destinations=("192.0.2.0/24",))
    await world.choose(("one", elsewhere), ("two", named("a.example.com")), ("three", here))
    assert await world.reached("a.example.com") == "two"


async def test_networks(world: World) -> None:
    """Of the client and of the address that it connects to; all that is set must hold."""
    block = world.wired.envoy.address.rpartition(".")[0]
    here = f"{block}.0/24"
    await world.choose(
        ("one", accepting.ChainMatch(sources=("127.9.9.9/32", "192.0.2.0/24"))),
        ("two", accepting.ChainMatch(destinations=(here,), sources=("127.9.9.0/24",))),
        ("three", accepting.ChainMatch(destinations=("2001:db8::/32", here))),
    )
    assert await world.reached("x", source="127.9.9.9") == "one"
    assert await world.reached("x", source="127.9.9.8") == "two"
    assert await world.reached("x", source="127.9.8.8") == "three"


async def test_tls_or_not(world: World) -> None:
    """One port serves both, told apart by the first bytes."""
    await world.choose(
        ("plain", accepting.ChainMatch(tls=False)), ("one", accepting.ChainMatch(tls=True))
    )
    assert await world.reached(clear=True) == "plain"
    assert await world.reached("x") == "one"


async def test_equal_matches_harm_nobody(world: World) -> None:
    """The first has the connections, and nothing is refused."""
    await world.choose(
        ("one", named("a.example.com")),
        ("two", named("a.example.com")),
        ("three", ANY),
        ("four", ANY),
    )
    assert await world.reached("a.example.com") == "one"
    assert await world.reached("b.example.com") == "three"


async def test_a_change_of_one_chain_leaves_the_others_alone(world: World) -> None:
    """A chain comes, another goes, a third gets other names: the listener is updated in place, and
    connections of the chains that stay go on."""
    await world.choose(("one", named("a.example.com")), ("two", named("b.example.com")))
    before = await world.wired.updates()
    async with world.stream("a.example.com") as first:
        assert first.name == "one"
        await world.choose(
            ("three", named("c.example.com")),
            ("one", named("a.example.com")),
            ("two", named("b.example.com")),
        )
        assert await world.reached("c.example.com") == "three"
        await world.choose(("one", named("d.example.com")), ("four", ANY))
        assert await world.reached("d.example.com") == "one"
        assert await world.reached("a.example.com") == "four"
        # And the same names in another order.
        await world.choose(("four", named("d.example.com")), ("one", ANY))
        assert await first.echo("still there") == "still there"
    after = await world.wired.updates()
    assert after["in_place_updated"] == before["in_place_updated"] + 3
    assert after["added"] == before["added"]


@pytest.mark.parametrize("variant", fleet.VARIANTS)
async def test_from_one_chain_to_two(variant: str) -> None:
    """A listener that gets its first server name is updated in place too."""
    pair = certificates.make("example.com")
    async with (
        wired.wired(variant) as made,
        tcp_backends.tcp_backend("one", pair.server()) as one,
        tcp_backends.tcp_backend("two", pair.server()) as two,
    ):
        world = World(made, {"one": one, "two": two})
        await world.choose(("one", ANY))
        async with world.stream("x.example.com") as first:
            await world.choose(("two", named("a.example.com")), ("one", ANY))
            assert await world.reached("a.example.com") == "two"
            assert await first.echo("still there") == "still there"
