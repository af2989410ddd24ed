# SPDX-License-Identifier: Apache-2.0
"""What `/metrics` tells, under the names that dashboards for istiod know, and debug pages."""

from __future__ import annotations

import pathlib

import aiohttp
import prometheus_client.parser
import pytest

from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import types
from tests.component.discovery import conftest as support
from tests.support import waiting

NODE = "sidecar~10.0.0.9~client-1.default~cluster.local"
V1 = "outbound|9080|version=v1|reviews.default"
CDS = types.CLUSTER.type_url


async def scrape(running: support.Running) -> dict[str, float]:
    """Every sample by its name, with its labels' values behind it."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{running.http}/metrics") as response,
    ):
        text = await response.text()
    return {
        "/".join((sample.name, *sample.labels.values())): sample.value
        for family in prometheus_client.parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_change_is_counted_on_its_way(folder: pathlib.Path) -> None:
    """From what triggered it to the last acknowledgement."""
    async with support.serving(folder) as running, support.connected(running.address, NODE) as one:
        await waiting.eventually(lambda: V1 in one.names(types.CLUSTER))
        before = await scrape(running)
        assert before["pilot_xds/sidecar"] == 1
        assert before["pilot_services"] == 1
        assert before["pilot_virt_services"] == 1
        (folder / "rule.yaml").write_text(support.rule("v2"))
        await waiting.eventually(lambda: V1 not in one.names(types.CLUSTER))

        async def converged() -> bool:
            after = await scrape(running)
            waves = "pilot_proxy_convergence_time_count"
            return after[waves] > before[waves]

        await waiting.eventually(converged)
        after = await scrape(running)
        assert after["pilot_push_triggers_total/files"] > before["pilot_push_triggers_total/files"]
        pushes = f"pilot_xds_pushes_total/{CDS}"
        assert after[pushes] > before[pushes]
        assert after["pilot_xds_config_size_bytes_count/CDS"] == after[pushes]
        assert after["pilot_xds_config_size_bytes_sum/CDS"] > 0


async def test_refusals_and_stale_answers_are_counted(folder: pathlib.Path) -> None:
    """By type."""
    async with support.serving(folder) as running, support.connected(running.address, NODE) as one:
        await waiting.eventually(lambda: V1 in one.names(types.CLUSTER))
        stale = discovery_pb2.DeltaDiscoveryRequest(type_url=CDS, response_nonce="of nobody")
        await one.write(stale)
        one.refuse = lambda url: "no" if url == CDS else ""
        (folder / "rule.yaml").write_text(support.rule("v2"))

        async def counted() -> bool:
            found = await scrape(running)
            refused = found.get(f"pilot_total_xds_rejects_total/{CDS}", 0)
            return refused >= 1 and found.get(f"pilot_xds_expired_nonce_total/{CDS}") == 1

        await waiting.eventually(counted)


@pytest.mark.parametrize("text", ["spec: {parents: [{service: reviews}], http: []}\n"])
async def test_objects_that_are_not_in_force_are_counted(folder: pathlib.Path, text: str) -> None:
    """Those whose newest generation was refused."""
    async with support.serving(folder) as running:
        assert (await scrape(running))["pilot_total_rejected_configs"] == 0
        head = "apiVersion: pilothouse.dev/v1alpha1\nkind: RouteRule\nmetadata: {name: bad}\n"
        (folder / "bad.yaml").write_text(head + text)

        async def told() -> bool:
            return (await scrape(running))["pilot_total_rejected_configs"] == 1

        await waiting.eventually(told)


async def test_a_page_tells_what_each_stream_asked_for_and_waits_for(folder: pathlib.Path) -> None:
    """By type: everything or names, and whether an answer is awaited."""
    async with (
        support.serving(folder) as running,
        support.connected(running.address, NODE) as one,
        aiohttp.ClientSession() as session,
    ):
        one.withhold.add(types.LISTENER.type_url)
        await one.ask(types.ENDPOINT.type_url, V1, "outbound|9080||reviews.default")
        await waiting.eventually(lambda: V1 in one.names(types.ENDPOINT))

        async def page() -> dict[str, dict[str, object]]:
            async with session.get(f"http://{running.http}/debug/clients") as response:
                (client,) = await response.json()
            return {types.of(each["type"]).short: each for each in client["types"]}

        async def told() -> bool:
            found = await page()
            return [found[name]["awaited"] for name in ("CDS", "EDS", "LDS")] == [
                False,
                False,
                True,
            ]

        await waiting.eventually(told)
        found = await page()
        assert found["CDS"]["asked"] == {"everything": True, "names": 0}
        assert found["EDS"]["asked"] == {"everything": False, "names": 2}
