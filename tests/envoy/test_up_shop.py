# SPDX-License-Identifier: Apache-2.0
"""`pilothouse up` with the sample shop and a few mistakes in it: requests, warnings, edits."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support import local_mesh
from tests.support.local_mesh import LocalMesh, edit, program, write
from tests.support.waiting import eventually

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

SHOP = "shop.example.com"
WRONG = """\
apiVersion: v1
kind: Service
metadata: {name: half
---
apiVersion: pilothouse.dev/v1alpha1
kind: RouteRule
metadata: {name: nowhere}
spec:
  parents: [{service: catalog}]
  http:
  - matches: [{path: {prefix: /nowhere}}]
    destinations: [{service: nobody}]
---
apiVersion: pilothouse.dev/v1alpha1
kind: RouteRule
metadata: {name: weightless}
spec:
  parents: [{service: ratings}]
  http: [{destinations: [{service: ratings, weight: 0}]}]
---
apiVersion: pilothouse.dev/v1alpha1
kind: RouteRul
metadata: {name: misspelt}
---
apiVersion: v1
kind: Service
metadata: {name: catalog}
spec: {selector: {app: somebody-else}, ports: [{port: 1}]}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return local_mesh.sample_shop(tmp_path_factory.mktemp("samples"), "127.9.81.1")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(folder: Path, tmp_path_factory) -> AsyncIterator[LocalMesh]:
    """The shop, with mistakes in a file that is read last, started from another folder."""
    write(folder / "wrong.yaml", WRONG)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    async with local_mesh.run("up", "-f", str(folder), "-o", "json", directory=elsewhere) as mesh:
        await mesh.up()
        yield mesh
        mesh.process.terminate()
        assert await mesh.exit() == 0, mesh.errors
        await mesh.nothing_left()


@pytest.mark.parametrize(
    ("path", "service"), [("/reviews", "reviews"), ("/catalog", "catalog"), ("/partner", "partner")]
)
async def test_a_request_goes_from_outside_through_the_frontend_to(
    shop: LocalMesh, path: str, service: str
):
    status, body = await shop.get(SHOP, path)

    assert status == 200
    assert body["service"] == "frontend"
    assert body["upstream"]["body"]["service"] == service


async def test_a_header_rule_holds_three_hops_deep(shop: LocalMesh):
    for _ in range(5):
        _, body = await shop.get(SHOP, "/reviews", **{"x-user": "jason"})
        reviews = body["upstream"]["body"]
        assert reviews["version"] == "v2"
        assert reviews["upstream"]["body"]["service"] == "ratings"


async def test_each_mistake_is_told_with_its_file_and_the_rest_serves(
    shop: LocalMesh, folder: Path
):
    told = {
        "wrong.yaml:1": "line 4: ",
        "wrong.yaml:2": "service default/nobody does not exist",
        "wrong.yaml:3": "at least one needs a weight that is not 0",
        "wrong.yaml:4": "unknown kind 'RouteRul'",
        "wrong.yaml:5": "which counts",
    }
    assert len(shop.found["warnings"]) == len(told), shop.found["warnings"]
    for place, words in told.items():
        (line,) = [w for w in shop.found["warnings"] if w.startswith(f"{folder}/{place}: ")]
        assert words in line
        assert f"warning: {line}" in shop.errors


async def test_what_it_prints_for_programs_is_where_everything_is(shop: LocalMesh):
    names = {one["name"]: one for one in shop.found["workloads"]}

    assert set(names) == {
        *("default/catalog-v1-0", "default/frontend-v1-0", "default/partner-local"),
        *("default/ratings-v1-0", "default/reviews-v1-0", "default/reviews-v2-0"),
    }
    assert names["default/partner-local"]["httpProxy"] is None
    assert shop.found["hosts"] == [SHOP]
    assert "serving" in shop.log("discovery")


@pytest.mark.parametrize("verb", ["proxies", "services", "get"])
async def test_the_other_verbs_answer(shop: LocalMesh, verb: str):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pilothouse.cli", verb, "-o", "json"),
        *("--discovery-address", shop.found["discovery"]),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    rows = json.loads(output)

    assert process.returncode == 0
    match verb:
        case "proxies":
            assert {one["state"] for one in rows} == {"SYNCED"}
            assert sum(one["role"] == "sidecar" for one in rows) >= 5
        case "services":
            ready = {one["name"]: one["ready"] for one in rows if one["namespace"] == "default"}
            assert ready["reviews"] == 2
        case _:
            accepted = {one["name"]: one["accepted"] for one in rows}
            assert (accepted["reviews"], accepted["weightless"]) == ("True", "False")


async def test_an_edited_rule_takes_effect(shop: LocalMesh, folder: Path):
    rule = folder / "routes.yaml"
    before = rule.read_text()
    edit(rule, "weight: 90", "weight: 0")
    try:

        async def only_v2() -> bool:
            answers = [await shop.get(SHOP, "/reviews") for _ in range(20)]
            return {body["upstream"]["body"]["version"] for _, body in answers} == {"v2"}

        # By chance alone the old rule does this once in 10 to the 20.
        await eventually(only_v2, 60.0)
    finally:
        write(rule, before)


async def test_a_new_file_brings_a_program_with_a_service_and_a_host(shop: LocalMesh, folder: Path):
    file = folder / "news.yaml"
    write(file, program("news", host="news.example.com"))
    try:
        await shop.answers("news.example.com", "/", lambda body: body["service"] == "news")
        # Scaled up, it answers from two programs.
        edit(file, "spec:\n  template", "spec:\n  replicas: 2\n  template")
        pods = set()

        async def both() -> bool:
            pods.add((await shop.get("news.example.com"))[1]["pod"])
            return pods == {"news-0", "news-1"}

        await eventually(both, 60.0)
    finally:
        file.unlink()
    await shop.answers("news.example.com", "/", lambda _: True, status=404)
    await shop.said("stopped default/news-0, default/news-1")
    assert not [line for line in shop.processes().values() if "news-" in line]


async def test_a_new_program_that_cannot_run_is_told_and_costs_nothing(
    shop: LocalMesh, folder: Path
):
    file = folder / "bad.yaml"
    write(file, program("bad").replace("echo.py]", "nothing.py]"))
    try:
        await shop.said("warning: bad-0.default ended with code 2")
        await shop.said("nothing.py': [Errno 2] No such file or directory")
    finally:
        file.unlink()
    assert (await shop.get(SHOP, "/catalog"))[0] == 200
    assert shop.process.returncode is None


async def test_a_host_that_is_added_to_an_ingress_is_served(shop: LocalMesh, folder: Path):
    file = folder / "more.yaml"
    assert (await shop.get("more.example.com"))[0] == 404
    write(file, local_mesh.ingress("frontend", "more.example.com"))
    try:
        await shop.answers("more.example.com", "/", lambda body: body["service"] == "frontend")
    finally:
        file.unlink()
    await shop.answers("more.example.com", "/", lambda _: True, status=404)
    assert (await shop.get(SHOP))[0] == 200


async def test_a_removed_file_is_gone_from_the_mesh_and_comes_back(
    shop: LocalMesh, folder: Path, tmp_path: Path
):
    file, aside = folder / "partner.yaml", tmp_path / "partner.yaml"
    text = file.read_text()
    file.rename(aside)
    try:
        await shop.answers(SHOP, "/partner", lambda _: True, status=502)
        await shop.said("stopped default/partner-local")
    finally:
        write(file, text)
    await shop.answers(SHOP, "/partner", lambda _: True)


async def test_a_second_mesh_does_not_disturb_the_first(shop: LocalMesh, tmp_path: Path):
    (tmp_path / "echo.yaml").write_text(program("echo", host=SHOP))
    async with local_mesh.run("up", "-f", ".", "-o", "json", directory=tmp_path) as other:
        await other.up()
        assert other.found["ingress"] != shop.found["ingress"]
        assert (await other.get(SHOP))[1]["service"] == "echo"
        assert (await shop.get(SHOP))[1]["service"] == "frontend"
        other.process.terminate()
        assert await other.exit() == 0
        await other.nothing_left()
    assert (await shop.get(SHOP, "/reviews"))[0] == 200
