# SPDX-License-Identifier: Apache-2.0
"""``pilothouse demo``: the sample shop under traffic, with a change of route while requests flow.

Every line that it prints was measured in this run; a wrong result makes the command exit with 1.
"""

from __future__ import annotations

import asyncio
import dataclasses
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import grpc

from pilothouse.api.status.v1alpha1 import status_service_pb2, status_service_pb2_grpc
from pilothouse.cli import envoy_admin, output, stopping, traffic
from pilothouse.cli.local import errors, mesh, sources

HOST = "shop.example.com"
RULES = "routes.yaml"
REQUESTS = 400
ACK_SECONDS = 30.0
BEFORE, AFTER = {"v1": 0.9, "v2": 0.1}, {"v1": 0.5, "v2": 0.5}
_SPLIT = """\
    - {{service: reviews, labels: {{version: v1}}, weight: {v1}}}
    - {{service: reviews, labels: {{version: v2}}, weight: {v2}}}
"""
_OLD, _NEW = _SPLIT.format(v1=90, v2=10), _SPLIT.format(v1=50, v2=50)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was tried."""

    what: str
    asked: str
    seen: str
    good: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the demo saw."""

    findings: tuple[Finding, ...]
    write_to_last_ack_seconds: float
    proxies: int
    requests: int
    failures: tuple[str, ...]

    @property
    def good(self) -> bool:
        """True when everything was as asked."""
        return not self.failures and all(finding.good for finding in self.findings)

    def as_text(self) -> list[str]:
        """For people."""
        rows = [
            {"checked": f.what, "asked": f.asked, "seen": f.seen, "": "ok" if f.good else "WRONG"}
            for f in self.findings
        ]
        milliseconds = f"{self.write_to_last_ack_seconds * 1000:.0f} ms"
        return [
            "",
            output.table(rows, ["checked", "asked", "seen", ""]),
            "",
            f"from the write to the last of {self.proxies} acknowledgements: {milliseconds}",
            *(f"failed: {failure}" for failure in self.failures[:10]),
        ]

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {**dataclasses.asdict(self), "good": self.good}


def version(answer: Mapping[str, Any]) -> str:
    """Which version of reviews answered the frontend."""
    return str(answer["upstream"]["body"]["version"])


def upstream_service(answer: Mapping[str, Any]) -> str:
    """Which service answered the frontend."""
    return str(answer["upstream"]["body"]["service"])


async def run(samples: pathlib.Path, *, say: Callable[[str], None]) -> Report:
    """Run the whole demo.

    Raises:
        errors.MeshError: the mesh could not be started, a part of it ended, or a signal came.
        process.EnvoyNotFoundError: there is no Envoy.
    """
    _require_known(samples)
    with stopping.signals() as stop:
        working = asyncio.create_task(_run(samples, say), name="demo")
        if await _first((working, asyncio.create_task(stop.wait(), name="stop"))) is not working:
            raise errors.MeshError("stopped before it was done")
        return await working


async def _run(samples: pathlib.Path, say: Callable[[str], None]) -> Report:
    with tempfile.TemporaryDirectory(prefix="pilothouse-demo-") as scratch:
        folder = _copy(samples, pathlib.Path(scratch))
        async with mesh.running(folder, say=say) as shop:
            showing = asyncio.create_task(_show(shop, folder, say), name="show")
            watching = asyncio.create_task(shop.watch(), name="watch")
            report: Report = await (await _first((showing, watching)))
    return report


async def _first(tasks: tuple[asyncio.Task[Any], ...]) -> asyncio.Task[Any]:
    """The task that ends first; the others are cancelled, and have ended too."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return next(task for task in tasks if task in done)


def _require_known(samples: pathlib.Path) -> None:
    path = samples / RULES
    if not path.is_file() or _OLD not in path.read_text(errors="replace"):
        raise errors.MeshError(
            f"{path}: the demo needs the sample shop, whose rules it knows how to change"
        )


def _copy(samples: pathlib.Path, scratch: pathlib.Path) -> pathlib.Path:
    """A copy, because the demo edits a rule; with the program beside it that the pods run."""
    samples = samples.resolve()
    for folder in (samples, samples.parent / "echo"):
        if folder.is_dir():
            shutil.copytree(folder, scratch / folder.name, dirs_exist_ok=True)
    return scratch / samples.name


async def _show(shop: mesh.Mesh, folder: pathlib.Path, say: Callable[[str], None]) -> Report:
    async with (
        traffic.Client.session() as session,
        grpc.aio.insecure_channel(shop.discovery_address) as channel,
    ):
        client = traffic.Client(session, base=shop.ingress_url, host=HOST)
        say(f"sending requests to {shop.ingress_url} with Host: {HOST}")
        findings, tallies = await _before(client, shop, say)
        say("changing the split to 50/50 while requests flow")
        status = status_service_pb2_grpc.StatusServiceStub(channel)
        running, seconds, proxies = await _change(client, status, folder)
        say(f"acknowledged by {proxies} proxies {seconds * 1000:.0f} ms after the write")
        after = await client.many(REQUESTS, "/reviews", version)
        findings.append(_split("split after the change", after, AFTER))
        tallies += [running, after]
    failures = tuple(sorted({failure for tally in tallies for failure in tally.failures}))
    requests = sum(tally.requests for tally in tallies)
    failed = sum(len(tally.failures) for tally in tallies)
    findings.append(
        Finding(what="failed requests", asked="0", seen=f"{failed} of {requests}", good=failed == 0)
    )
    return Report(
        findings=tuple(findings),
        write_to_last_ack_seconds=round(seconds, 4),
        proxies=proxies,
        requests=requests,
        failures=failures,
    )


async def _before(
    client: traffic.Client, shop: mesh.Mesh, say: Callable[[str], None]
) -> tuple[list[Finding], list[traffic.Tally]]:
    split = await client.many(REQUESTS, "/reviews", version)
    testers = await client.many(40, "/reviews", version, headers={"x-user": "jason"})
    catalog = await client.many(40, "/catalog", upstream_service)
    say("calling the partner outside the mesh through the egress gateway")
    admin = shop.admin_socket(shop.block.egress)
    earlier = await envoy_admin.requests_received(admin)
    partner = await client.many(40, "/partner", upstream_service)
    passed = await envoy_admin.requests_received(admin) - earlier
    findings = [
        _split("split of reviews", split, BEFORE),
        _split("testers (x-user: jason)", testers, {"v2": 1.0}),
        _split("a service without rules", catalog, {"catalog": 1.0}),
        _split("external host", partner, {"partner": 1.0}),
        Finding(
            what="external requests through the egress gateway",
            asked="40",
            seen=str(passed),
            good=passed == 40,
        ),
    ]
    return findings, [split, testers, catalog, partner]


def _split(what: str, tally: traffic.Tally, asked: Mapping[str, float]) -> Finding:
    total = sum(tally.answers.values()) or 1
    return Finding(
        what=what,
        asked=", ".join(f"{name} {share:.0%}" for name, share in sorted(asked.items())),
        seen=", ".join(
            f"{name} {count / total:.1%}" for name, count in sorted(tally.answers.items())
        )
        or "no answer",
        good=tally.fits(asked),
    )


async def _change(
    client: traffic.Client,
    status: status_service_pb2_grpc.StatusServiceAsyncStub,
    folder: pathlib.Path,
) -> tuple[traffic.Tally, float, int]:
    """Edit the rule under load.

    Returns:
        What the load met, seconds from the write to the last ACK, and how many proxies there were.
    """
    path = folder / RULES
    stop = asyncio.Event()
    load = asyncio.create_task(client.until(stop, "/reviews", version), name="load")
    try:
        watch = status.WatchObjectStatuses(
            status_service_pb2.WatchObjectStatusesRequest(kind="RouteRule", namespace="default")
        )
        async with asyncio.timeout(ACK_SECONDS):
            generation = _generation(await anext(aiter(watch)))
            text = path.read_text().replace(_OLD, _NEW)
            written = time.perf_counter()
            await asyncio.to_thread(sources.replace, path, text)
            proxies = await _acknowledged(watch, newer_than=generation)
            seconds = time.perf_counter() - written
        watch.cancel()
        # What the change may have broken must show: the load goes on for as long again, and then
        # some.
        await asyncio.sleep(1.0)
    except TimeoutError:
        msg = f"the change was not acknowledged by every proxy within {ACK_SECONDS:.0f} s"
        raise errors.MeshError(msg) from None
    finally:
        stop.set()
        tally = await load
    return tally, seconds, proxies


def _generation(first: status_service_pb2.WatchObjectStatusesResponse) -> int:
    return next(
        (one.status.observed_generation for one in first.objects if one.object.name == "reviews"), 0
    )


async def _acknowledged(watch: Any, *, newer_than: int) -> int:
    async for message in watch:
        for one in message.objects:
            counts = one.status.proxies
            fresh = one.object.name == "reviews" and one.status.observed_generation > newer_than
            if fresh and counts.needed and counts.acked == counts.needed:
                return int(counts.acked)
    msg = "discovery ended the watch"
    raise errors.MeshError(msg)
