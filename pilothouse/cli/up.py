# SPDX-License-Identifier: Apache-2.0
"""``pilothouse up``: a mesh that stays until it is told to stop."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import typer

from pilothouse.cli import output, stopping
from pilothouse.cli.local import mesh


async def run(
    folder: pathlib.Path,
    *,
    duration: float | None,
    block: int | None,
    keep: bool,
    form: output.Format,
    say: Callable[[str], None],
) -> None:
    """Run a mesh until SIGINT, SIGTERM or ``duration`` seconds.

    Raises:
        errors.MeshError: it could not be started, or a part of it ended by itself.
        process.EnvoyNotFoundError: there is no Envoy.
    """
    with stopping.signals() as stop:
        starting = asyncio.current_task()
        early = asyncio.create_task(_cancel_on(stop, starting), name="early-stop")
        try:
            async with mesh.running(folder, say=say, block=block, keep=keep) as running:
                warnings = await running.warnings()
                early.cancel()
                for warning in warnings:
                    say(f"warning: {warning}")
                _show({**running.describe(), "warnings": list(warnings)}, folder, form)
                await _until(stop, running, duration)
                say("stopping")
        except asyncio.CancelledError:
            if not stop.is_set():
                raise
            say("stopped before it was up")
        finally:
            early.cancel()
        if keep:
            say(f"kept {running.home}")


async def _cancel_on(stop: asyncio.Event, task: asyncio.Task[object] | None) -> None:
    """A signal while the mesh starts ends the start; what runs already is stopped in order."""
    await stop.wait()
    if task is not None:
        task.cancel()


async def _until(stop: asyncio.Event, running: mesh.Mesh, duration: float | None) -> None:
    tasks = [
        asyncio.create_task(stop.wait(), name="stop"),
        asyncio.create_task(running.watch(), name="watch"),
        asyncio.create_task(running.follow(), name="follow"),
    ]
    try:
        done, _ = await asyncio.wait(tasks, timeout=duration, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _show(found: Mapping[str, Any], folder: pathlib.Path, form: output.Format) -> None:
    if form is output.Format.TABLE:
        for line in summary(found, folder):
            typer.echo(line)
    else:
        output.show_one(found, form=form)


def summary(found: Mapping[str, Any], folder: pathlib.Path) -> list[str]:
    """What to do with a mesh that is up."""
    workloads, discovery = found["workloads"], found["discovery"]
    lines = ["", f"The mesh is up. Requests from outside go to {found['ingress']}:"]
    lines += [f"  curl -H 'Host: {host}' {found['ingress']}/" for host in found["hosts"]] or [
        f"  (no Ingress in {folder} names a host yet)"
    ]
    rows = [
        {"workload": one["name"], "http proxy": one["httpProxy"] or "(outside the mesh)"}
        for one in workloads
    ]
    inside = [one for one in workloads if one["httpProxy"]]
    if inside:
        lines += [
            "",
            "Programs call services by name, each through its own sidecar; so can you:",
            f"  curl -x {inside[0]['httpProxy']} http://SERVICE:PORT/",
            output.table(rows, ["workload", "http proxy"]),
        ]
    lines += [
        "",
        f"Edit, add or remove files in {folder}, and the mesh follows. To see that it did:",
        f"  pilothouse get --discovery-address {discovery}",
        f"  pilothouse proxies --discovery-address {discovery}",
        f"Debug pages are below {found['debug']}, logs in {found['logs']}.",
        "Ctrl-C stops everything.",
    ]
    return lines
