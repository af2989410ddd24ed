# SPDX-License-Identifier: Apache-2.0
"""``pilothouse up``: a mesh that stays until it is told to stop."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable

import typer

from pilothouse.adapters.rpc import serving
from pilothouse.cli import output
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
        mesh.MeshError: it could not be started, or a part of it ended by itself.
    """
    with serving.stop_signals() as stop:
        starting = asyncio.current_task()
        early = asyncio.create_task(_cancel_on(stop, starting), name="early-stop")
        try:
            async with mesh.running(folder, say=say, block=block, keep=keep) as running:
                early.cancel()
                _show(running, form)
                await _until(stop, running, duration)
                say("stopping")
        except asyncio.CancelledError:
            if not stop.is_set():
                raise
            say("stopped before it was up")
        finally:
            early.cancel()


async def _cancel_on(stop: asyncio.Event, task: asyncio.Task[object] | None) -> None:
    """A signal while the mesh starts ends the start; what runs already is stopped in order."""
    await stop.wait()
    if task is not None:
        task.cancel()


async def _until(stop: asyncio.Event, running: mesh.Mesh, duration: float | None) -> None:
    waiting = asyncio.create_task(stop.wait(), name="stop")
    watching = asyncio.create_task(running.watch(), name="watch")
    try:
        await asyncio.wait(
            (waiting, watching), timeout=duration, return_when=asyncio.FIRST_COMPLETED
        )
        if watching.done():
            await watching
    finally:
        waiting.cancel()
        watching.cancel()
        await asyncio.wait((waiting, watching))


def _show(running: mesh.Mesh, form: output.Format) -> None:
    found = running.describe()
    if form is not output.Format.TABLE:
        output.show([found], columns=[], form=form)
        return
    typer.echo(f"\nThe mesh is up. Requests from outside go to {found['ingress']}, for example:")
    for host in running.hosts:
        typer.echo(f"  curl -H 'Host: {host}' {found['ingress']}/")
    typer.echo("\nPrograms in the mesh call each other through their own sidecar:")
    rows = [
        {"workload": one["name"], "http proxy": one["httpProxy"] or "(outside the mesh)"}
        for one in found["workloads"]
    ]
    typer.echo(output.table(rows, ["workload", "http proxy"]))
    typer.echo(f"\nIts state: pilothouse proxies --discovery-address {found['discovery']}")
    typer.echo(f"           pilothouse get --discovery-address {found['discovery']}")
    typer.echo(f"Debug pages: {found['debug']}   logs: {found['logs']}")
    typer.echo("Ctrl-C stops everything.")
