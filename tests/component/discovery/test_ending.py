# SPDX-License-Identifier: Apache-2.0
"""A discovery that is told to stop does, whatever it is doing."""

from __future__ import annotations

import pathlib

import pytest

from tests.support import agent, programs

ENDLESS = """
import sys

import structlog

from pilothouse_discovery import app, builder


def build(*_arguments, **_keywords):
    structlog.get_logger().info("building")
    while True:
        sum(range(100))


builder.Builder.build = build
sys.exit(app.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_build_without_an_end_is_abandoned(tmp_path: pathlib.Path, workers: int) -> None:
    """SIGTERM in the midst of a build ends the program with 0; the build is not waited for."""
    mesh = tmp_path / "mesh"
    mesh.mkdir()
    (tmp_path / "endless.py").write_text(ENDLESS)
    ports = agent.free_port(), agent.free_port()
    flags = ["--config", str(mesh), "--workers", str(workers)]
    flags += ["--grpc-address", f"127.0.0.1:{ports[0]}", "--http-address", f"127.0.0.1:{ports[1]}"]
    async with programs.run("endless", *flags, folder=tmp_path) as program:
        await program.logged("building")
        assert await program.stop() == 0
        assert [line for line in program.log() if line["level"] in ("error", "critical")] == []
