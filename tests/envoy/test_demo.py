# SPDX-License-Identifier: Apache-2.0
"""`pilothouse demo` with real Envoys: what it reports is true, and it leaves nothing behind."""

import json
from pathlib import Path

import pytest

from tests.support import local_mesh

pytestmark = [pytest.mark.envoy, pytest.mark.timeout(240)]


async def test_the_demo_of_the_sample_shop_finds_everything_as_asked(tmp_path: Path):
    shop = local_mesh.sample_shop(tmp_path, "127.9.83.1")
    async with local_mesh.run("demo", "-f", str(shop), "-o", "json", directory=tmp_path) as demo:
        assert await demo.exit(80) == 0, demo.errors
        await demo.nothing_left()

        report = json.loads(demo.output)
    assert report["good"]
    assert report["failures"] == []
    assert len(report["findings"]) == 7
    assert all(finding["good"] for finding in report["findings"])
    # 2 requests series of 400, 3 of 40, and those that ran during the change.
    assert report["requests"] > 920
    assert report["proxies"] >= 1
    assert 0 < report["write_to_last_ack_seconds"] < 30
    # It edits a copy.
    assert "weight: 90" in (shop / "routes.yaml").read_text()


async def test_a_demo_that_is_stopped_leaves_nothing(tmp_path: Path):
    shop = local_mesh.sample_shop(tmp_path, "127.9.83.2")
    async with local_mesh.run("demo", "-f", str(shop), directory=tmp_path) as demo:
        await demo.said("starting 16 processes")
        demo.process.terminate()
        assert await demo.exit() == 1
        assert "error: stopped before it was done" in demo.errors
        await demo.nothing_left()
