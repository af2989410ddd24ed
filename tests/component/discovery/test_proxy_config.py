# SPDX-License-Identifier: Apache-2.0
"""`pilothouse proxy-config`, asked of a discovery server with connected clients."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import pathlib
import subprocess
import sys

from pilothouse.xds import types
from tests.component.discovery import conftest as support
from tests.support import waiting

NODE = "sidecar~10.0.0.9~client-1.default~cluster.local"
TWIN = "sidecar~10.0.0.8~client-1.other~cluster.local"
V1 = "outbound|9080|version=v1|reviews.default"


@dataclasses.dataclass(frozen=True, slots=True)
class _Result:
    exit_code: int
    stdout: str
    stderr: str


async def _run(*words: str, address: str) -> _Result:
    """The command in a process of its own, as a user runs it."""
    command = ["-m", "pilothouse.cli", "proxy-config", *words, "--discovery-address", address]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return _Result(process.returncode, out.decode(), err.decode())


async def test_a_table_tells_names_and_states(folder: pathlib.Path) -> None:
    """Of one kind; what was acknowledged is SYNCED."""
    async with support.serving(folder) as running, support.connected(running.address, NODE) as one:
        await waiting.eventually(lambda: V1 in one.names(types.CLUSTER))
        result = await _run("clusters", "client-1", "--name", "version=", address=running.address)
        assert result.exit_code == 0, result.stderr
        head, *lines = [line.split() for line in result.stdout.splitlines()]
        assert head == ["TYPE", "NAME", "STATE", "VERSION", "REFUSED"]
        assert [line[:3] for line in lines] == [["CDS", V1, "SYNCED"]]


async def test_json_holds_what_the_proxy_holds(folder: pathlib.Path) -> None:
    """Also what is packed in it."""
    async with support.serving(folder) as running, support.connected(running.address, NODE) as one:
        await waiting.eventually(lambda: one.names(types.LISTENER) != set())
        result = await _run("listeners", "client-1.default", "-o", "json", address=running.address)
        assert result.exit_code == 0, result.stderr
        found = {row["name"]: row["resource"] for row in json.loads(result.stdout)}
        assert set(found) == one.names(types.LISTENER)
        (chain,) = found["http-proxy"]["filterChains"]
        assert chain["filters"][0]["typedConfig"]["rds"]["routeConfigName"] == "http-proxy"


async def test_a_refusal_is_told_in_the_proxys_words(folder: pathlib.Path) -> None:
    """State ERROR."""
    async with support.serving(folder) as running, support.connected(running.address, NODE) as one:
        await waiting.eventually(lambda: V1 in one.names(types.CLUSTER))
        one.refuse = lambda url: "I would rather not" if url == types.CLUSTER.type_url else ""
        (folder / "rule.yaml").write_text(support.rule("v2"))

        async def told() -> bool:
            result = await _run("all", NODE, "-o", "json", address=running.address)
            assert result.exit_code == 0, result.stderr
            rows = json.loads(result.stdout)
            return any(
                row["state"] == "ERROR" and row["refused"] == "I would rather not" for row in rows
            )

        await waiting.eventually(told)


async def test_a_name_must_fit_one_proxy(folder: pathlib.Path) -> None:
    """Exit code 1, with the candidates; a wrong kind is wrong use."""
    async with (
        support.serving(folder) as running,
        support.connected(running.address, NODE) as one,
        support.connected(running.address, TWIN) as other,
    ):
        await waiting.eventually(lambda: one.names(types.CLUSTER) and other.names(types.CLUSTER))
        several = await _run("clusters", "client-1", address=running.address)
        assert several.exit_code == 1
        assert NODE in several.stderr
        assert TWIN in several.stderr
        nobody = await _run("clusters", "nobody", address=running.address)
        assert nobody.exit_code == 1
        assert "no proxy 'nobody' is connected" in nobody.stderr
        wrong = await _run("bogus", "client-1", address=running.address)
        assert wrong.exit_code == 2
        assert "known: all, clusters" in wrong.stderr
