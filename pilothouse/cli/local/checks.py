# SPDX-License-Identifier: Apache-2.0
"""What the services say is wrong with the user's folder, as lines to print."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import aiohttp

from pilothouse.cli.local import addresses, commands, probes

SYNC_SECONDS = 5.0
POLL_SECONDS = 0.05
_GOOD_WHEN_TRUE = ("Accepted", "ResolvedRefs")
_PROGRESS = ("Programmed",)
"""Says how far an object is, not that it is wrong; a refusal is told all the same."""


async def warnings(block: addresses.Block) -> tuple[str, ...]:
    """Everything that discovery, ingress and egress find wrong, sorted, each once."""
    control = f"http://{block.control}"
    discovery = f"{control}:{commands.DISCOVERY_HTTP_PORT}/debug"
    ingress = f"{control}:{commands.INGRESS_HTTP_PORT}/debug"
    async with probes.session() as session:
        await _synced(f"{discovery}/sources", session)
        problems = [
            one
            for url in (f"{discovery}/problems", f"{ingress}/problems")
            for one in await probes.page(url, session) or ()
        ]
        stated = [
            one
            for url in (
                f"{discovery}/objects",
                f"{ingress}/ingresses",
                f"{control}:{commands.EGRESS_HTTP_PORT}/debug/externalservices",
            )
            for one in await probes.page(url, session) or ()
        ]
    return lines(problems, stated)


def lines(
    problems: Iterable[Mapping[str, Any]], stated: Iterable[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Problems of files, and conditions of objects that are not as they should be.

    What was derived from another object is left out: its origin says the same.
    """
    found = {f"{one['location']}: {one['message']}" for one in problems}
    for one in stated:
        if not one.get("origins"):
            found.update(_bad(str(one["object"]), one["conditions"]))
    return tuple(sorted(found))


def _bad(name: str, conditions: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for condition in conditions:
        kind, words = condition["type"], condition["message"] or condition["reason"]
        if kind in _PROGRESS:
            wrong = condition["reason"] == "Refused"
        elif kind in _GOOD_WHEN_TRUE:
            # True with a message is a warning, as ingress writes it.
            wrong = not condition["status"] or bool(condition["message"])
        else:
            wrong = bool(condition["status"])
        if wrong:
            yield f"{name}: {kind}: {words}"


async def _synced(url: str, session: aiohttp.ClientSession) -> None:
    """Wait a little until discovery has read what was derived, too."""
    end = asyncio.get_running_loop().time() + SYNC_SECONDS
    while asyncio.get_running_loop().time() < end:
        sources = await probes.page(url, session)
        if sources is not None and not sources["unsynced"]:
            return
        await asyncio.sleep(POLL_SECONDS)
