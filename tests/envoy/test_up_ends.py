# SPDX-License-Identifier: Apache-2.0
"""Every way in which `pilothouse up` ends: nothing is left, and a failure says what failed."""

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.support import local_mesh
from tests.support.local_mesh import program

pytestmark = pytest.mark.envoy

HOST = "echo.example.com"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "mesh"
    made.mkdir()
    (made / "echo.yaml").write_text(program("echo", host=HOST))
    return made


async def test_with_a_duration_it_ends_by_itself_and_has_said_where_to_send_requests(
    folder: Path, tmp_path: Path
):
    async with local_mesh.run(
        "up", "-f", str(folder), "--duration", "0.2", directory=tmp_path
    ) as up:
        assert await up.exit(50) == 0, up.errors
        await up.nothing_left()

        assert f"curl -H 'Host: {HOST}' http://127." in up.output
        assert f"Edit, add or remove files in {folder}" in up.output
        for what in ("3 services", "2 gateways", "echo-0.default", "sidecar-echo-0.default"):
            assert f"{what} ready after" in up.errors


def _interrupt_group(up: local_mesh.LocalMesh) -> None:
    """What a terminal does on Ctrl-C."""
    os.killpg(up.process.pid, signal.SIGINT)


def _interrupt(up: local_mesh.LocalMesh) -> None:
    up.process.send_signal(signal.SIGINT)


def _kill(up: local_mesh.LocalMesh) -> None:
    up.process.kill()


# SIGTERM ends the meshes of the other modules, which ask the same.
@pytest.mark.parametrize(("end", "code"), [(_interrupt_group, 0), (_kill, -signal.SIGKILL)])
async def test_no_process_and_no_port_is_left_after(folder: Path, end, code: int):
    async with local_mesh.run("up", "-o", "json", "-f", ".", directory=folder) as up:
        await up.up()
        assert (await up.get(HOST))[0] == 200
        assert len(up.processes()) == 11  # itself, 3 services, 3 agents, 3 Envoys, 1 program
        assert up.listening()

        end(up)
        assert await up.exit() == code, up.errors
        # Nobody is there to remove the folder after a kill.
        await up.nothing_left(folder=end is not _kill)


async def test_ctrl_c_while_it_starts_leaves_nothing_either(folder: Path):
    async with local_mesh.run("up", "-f", ".", directory=folder) as up:
        await up.said("echo-0.default ready")
        _interrupt(up)
        assert await up.exit() == 0
        assert "stopped before it was up" in up.errors
        await up.nothing_left()


@pytest.mark.parametrize(
    ("victim", "named"),
    [
        (("envoy", "-c", "127.{block}.1.1/"), "sidecar-echo-0.default"),
        (("pilothouse_discovery",), "discovery"),
    ],
)
async def test_when_a_part_is_killed_it_ends_and_names_the_part(
    folder: Path, victim: tuple[str, ...], named: str
):
    async with local_mesh.run("up", "-o", "json", "-f", ".", directory=folder) as up:
        await up.up()
        block = up.found["discovery"].split(".")[1]
        os.kill(up.pid(*(word.format(block=block) for word in victim)), signal.SIGKILL)

        assert await up.exit() == 1
        assert f"error: {named} ended with code 137 (killed by signal 9" in up.errors
        assert "the end of its log:\n    " in up.errors
        await up.nothing_left()


async def test_a_program_that_ends_while_the_mesh_starts_is_named_with_its_last_words(
    folder: Path,
):
    local_mesh.edit(folder / "echo.yaml", 'value: "9080"', "value: ninety")
    async with local_mesh.run("up", "-f", ".", directory=folder) as up:
        assert await up.exit() == 1
        assert "error: echo-0.default ended with code 1" in up.errors
        assert "    ValueError: invalid literal for int() with base 10: 'ninety'" in up.errors
        await up.nothing_left()


async def test_a_port_that_is_in_use_is_told_before_anything_starts(folder: Path):
    with socket.create_server(("127.9.82.1", 9080)):
        local_mesh.edit(
            folder / "echo.yaml",
            "metadata: {labels: {app: echo}}",
            "metadata: {labels: {app: echo}, annotations: {pilothouse.dev/address: 127.9.82.1}}",
        )
        async with local_mesh.run("up", "-f", ".", directory=folder) as up:
            assert await up.exit() == 1
            assert "in use by another program: 127.9.82.1:9080 for" in up.errors
            assert "pod default/echo-0" in up.errors
            assert up.homes() == []


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (("-f", "nowhere"), {}, "error: nowhere: no such folder"),
        ((), {}, "error: there is no samples/shop in"),
        (
            ("-f", "."),
            {"PILOTHOUSE_ENVOY": "/nowhere/envoy"},
            "error: PILOTHOUSE_ENVOY: /nowhere/envoy does not exist",
        ),
    ],
)
async def test_what_is_missing_is_told_in_one_line(
    folder: Path, arguments: tuple[str, ...], environment: dict[str, str], said: str
):
    async with local_mesh.run("up", *arguments, directory=folder, environment=environment) as up:
        assert await up.exit() == 1
        (line,) = up.errors.splitlines()
        assert line.startswith(said)
        assert up.homes() == []
