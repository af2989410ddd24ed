# SPDX-License-Identifier: Apache-2.0
"""Generated worlds through a real Envoy: it does what the objects document.

The same worlds meet a reader of Envoy's configuration in `tests/simulation/test_reference.py`; here
Envoy itself is asked, so that this reader may not be wrong about Envoy.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter

import pytest

from tests.support import reference_envoy
from tests.support import reference_planned as planned
from tests.support import reference_values as values
from tests.support import reference_worlds as worlds

pytestmark = pytest.mark.envoy

WORLDS, REQUESTS = 30, 12

_GRPC = {404: "12", 503: "14"}
"""https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md; others are 2."""


def cases(block: int) -> list[worlds.Case]:
    """Worlds and requests that an Envoy without TLS can be asked."""
    found: list[worlds.Case] = []
    for seed in range(WORLDS):
        world, asked = worlds.case(seed, requests=REQUESTS, rules=1 + seed % 5)
        plain = [
            # Who comes in the clear to a gateway cannot have come with https.
            (
                reference_envoy.moved_client(each, block),
                request if each.port is None else dataclasses.replace(request, scheme="http"),
            )
            for each, request in asked
        ]
        found.append((reference_envoy.moved(world, block), plain))
    return found


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
async def test_envoy_does_what_is_documented(version: str) -> None:
    """Who answers, with which status and headers, and what applications see."""
    held = reference_envoy.block()
    try:
        some = cases(held.block.number)
        wrong: list[str] = []
        met: Counter[str] = Counter()
        inhabited = [(world, {client for client, _ in asked}) for world, asked in some]
        async with reference_envoy.running(inhabited) as fleet:
            at_once = asyncio.Semaphore(8)

            async def ask(number: int, client: values.Client, request: values.Request) -> None:
                said = planned.documented(some[number][0], [(client, request)])[0]
                send = fleet.ask if version == "HTTP/1.1" else fleet.ask_http2
                async with at_once:
                    answer = await send(number, client, request)
                met[said.route.partition("/")[0] or "none"] += 1
                if complaint := disagreement(request, said, answer):
                    wrong.append(f"world {number}: {complaint}\n{client}\n{request}\n{said}")

            await asyncio.gather(
                *(ask(number, *each) for number, (_, asked) in enumerate(some) for each in asked)
            )
    finally:
        held.close()
    assert wrong == []
    assert met["RouteRule"] > 100, met


def disagreement(
    request: values.Request, said: values.Verdict, answer: reference_envoy.Answer
) -> str:
    """Why an answer is not what is documented; empty when it may be."""
    headers = dict(request.headers)
    preflight = "access-control-request-method" in headers
    if said.cors and preflight and not said.status:
        # The origin of all preflights is one that is allowed.
        return "" if request.method == "OPTIONS" and answer.status == 200 else f"got {answer}"
    grpc = headers.get("content-type") == "application/grpc"
    if said.fault.aborted and _has_status(said.fault.status, answer, grpc=grpc):
        return ""
    if said.fault.aborted == 1:
        return f"not aborted: {answer}"
    if said.status:
        return _answered(said, answer, grpc=grpc)
    complaints = [_sent_on(said, share, answer, grpc=grpc) for share in said.shares]
    return "" if "" in complaints else f"{complaints}: {answer}"


def _has_status(status: int, answer: reference_envoy.Answer, *, grpc: bool) -> bool:
    """Whether Envoy answered so by itself; gRPC clients are told as gRPC tells."""
    if answer.endpoint:
        return False
    if grpc:
        return (answer.status, answer.grpc_status) == (200, _GRPC.get(status, "2"))
    return answer.status == status


def _answered(said: values.Verdict, answer: reference_envoy.Answer, *, grpc: bool) -> str:
    if not _has_status(said.status, answer, grpc=grpc):
        return f"wanted {said.status}: {answer}"
    if not grpc and said.location != answer.location:
        return f"wanted {said.location}: {answer}"
    if said.route and said.response_headers != answer.headers:
        return f"wanted {said.response_headers}: {answer}"
    if said.body and not grpc and said.body != answer.body:
        return f"wanted {said.body!r}: {answer}"
    return ""


def _sent_on(
    said: values.Verdict, share: values.Share, answer: reference_envoy.Answer, *, grpc: bool
) -> str:
    """Why an answer cannot have come by a share; empty when it may."""
    if share.target == values.NOWHERE or not share.endpoints:
        status = 500 if share.target == values.NOWHERE else 503
        return "" if _has_status(status, answer, grpc=grpc) else f"not {status}"
    if answer.endpoint not in share.endpoints:
        return f"not {share.target} at {share.endpoints}"
    wanted = (200, said.path, said.host, share.request_headers, share.response_headers)
    found = (answer.status, answer.path, answer.host, answer.seen, answer.headers)
    return "" if wanted == found else f"wanted {wanted}"
