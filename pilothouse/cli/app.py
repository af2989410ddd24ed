# SPDX-License-Identifier: Apache-2.0
"""The verbs of ``pilothouse``.

Exit codes: 0 fine, 1 the answer is no or something failed, 2 wrong use.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
from collections.abc import Callable
from typing import Annotated, Any

import grpc
import typer

from pilothouse import buildinfo
from pilothouse.adapters import process
from pilothouse.cli import output, queries, validating

app = typer.Typer(
    name="pilothouse",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Pilothouse: a control plane for Envoy. Try `pilothouse up`, or `pilothouse demo`.",
)

Folder = Annotated[
    pathlib.Path, typer.Option("-f", "--folder", help="Folder of manifests and config objects.")
]
Output = Annotated[output.Format, typer.Option("-o", "--output", help="How to print the answer.")]
Namespace = Annotated[str, typer.Option("-n", "--namespace", help="Only this namespace.")]
Discovery = Annotated[
    str,
    typer.Option(
        "--discovery-address",
        envvar="PILOTHOUSE_DISCOVERY_ADDRESS",
        help="HOST:PORT of discovery's gRPC server.",
    ),
]
SAMPLES = pathlib.Path("samples/shop")
DISCOVERY = "127.40.0.1:15010"
"""Where `pilothouse up` puts discovery on an otherwise free machine."""


def _versions() -> dict[str, str]:
    found = {"pilothouse": buildinfo.version(), "commit": buildinfo.commit()}
    try:
        path = process.find_envoy(os.environ.get("PILOTHOUSE_ENVOY_PATH") or None)
        found["envoy"] = asyncio.run(process.envoy_version(path))
        found["envoyPath"] = str(path)
    except process.EnvoyNotFoundError as error:
        found["envoy"] = f"not found: {error}"
    return found


def _version_option(asked: bool) -> None:  # noqa: FBT001  typer calls it so
    if asked:
        for name, value in _versions().items():
            typer.echo(f"{name} {value}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version_option, is_eager=True, help="Print versions and exit."
        ),
    ] = False,
) -> None:
    del version


@app.command()
def version(form: Output = output.Format.TABLE) -> None:
    """Print the package's version, its git commit, and the Envoy that is found."""
    found = _versions()
    output.show([found], columns=list(found), form=form)


@app.command()
def up(
    folder: Folder = SAMPLES,
    *,
    duration: Annotated[
        float | None, typer.Option(min=0, help="End by itself after so many seconds.")
    ] = None,
    block: Annotated[
        int | None,
        typer.Option(min=1, max=254, help="Use addresses 127.BLOCK.0.0/16; default: a free block."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave logs and generated files in place.")
    ] = False,
    form: Output = output.Format.TABLE,
) -> None:
    """Run a whole mesh on this machine: services, gateways, sidecars and programs.

    The folder holds ordinary Kubernetes manifests (Service, Deployment, Pod, Ingress, Secret) and
    config objects; the command of each pod's container is run here. Edit a file and the mesh
    follows. Ctrl-C stops everything.
    """
    from pilothouse.cli import up as verb  # noqa: PLC0415  other verbs need no server libraries

    _run(
        lambda: verb.run(
            folder, duration=duration, block=block, keep=keep, form=form, say=_progress
        )
    )


@app.command()
def demo(folder: Folder = SAMPLES, form: Output = output.Format.TABLE) -> None:
    """Run the sample shop under traffic, change a rule meanwhile, and report what was seen."""
    from pilothouse.cli import demo as verb  # noqa: PLC0415

    report = _run(lambda: verb.run(folder, say=_progress))
    if form is output.Format.TABLE:
        rows = [
            {"checked": f.what, "asked": f.asked, "seen": f.seen, "": "ok" if f.good else "WRONG"}
            for f in report.findings
        ]
        typer.echo("\n" + output.table(rows, ["checked", "asked", "seen", ""]))
        typer.echo(
            f"\nfrom the write to the last of {report.proxies} acknowledgements: "
            f"{report.write_to_last_ack_seconds * 1000:.0f} ms"
        )
        for failure in report.failures[:10]:
            typer.echo(f"failed: {failure}")
    else:
        output.show([report.as_json()], columns=[], form=form)
    if not report.good:
        raise output.fail("the mesh did not do what was asked of it")


def _progress(line: str) -> None:
    typer.echo(line, err=True)


def _run(verb: Callable[[], Any]) -> Any:
    from pilothouse.cli.local import addresses, mesh  # noqa: PLC0415

    try:
        return asyncio.run(verb())
    except (mesh.MeshError, addresses.NoBlockError, process.EnvoyNotFoundError) as error:
        raise output.fail(str(error)) from None
    except KeyboardInterrupt:
        raise output.fail("interrupted", code=130) from None


@app.command()
def validate(
    paths: Annotated[
        list[pathlib.Path], typer.Option("-f", "--file", help="File or folder; may be repeated.")
    ],
    *,
    form: Output = output.Format.TABLE,
) -> None:
    """Check config objects offline; tells every violation with its field, not only the first."""
    try:
        verdict = validating.run(paths)
    except (validating.NothingToReadError, OSError) as error:
        raise output.fail(str(error), code=2) from None
    if verdict.rows or form is not output.Format.TABLE:
        columns = ["severity", "where", "object", "field", "message"]
        output.show(verdict.rows, columns=columns, form=form)
    if not verdict.ok:
        raise typer.Exit(1)
    if form is output.Format.TABLE:
        typer.echo(f"{verdict.objects} config objects are valid")


@app.command()
def proxies(address: Discovery = DISCOVERY, form: Output = output.Format.TABLE) -> None:
    """List proxies and services, and whether each has acknowledged all that it was sent."""
    rows = _ask(address, lambda: queries.proxies(address))
    output.show(rows, columns=["node", "role", "state"], form=form)


@app.command()
def get(
    kind: Annotated[
        str, typer.Argument(help="Only this kind, for example RouteRule; empty for all.")
    ] = "",
    namespace: Namespace = "",
    address: Discovery = DISCOVERY,
    form: Output = output.Format.TABLE,
) -> None:
    """List config objects with their state: accepted or not, and how many proxies run them."""
    rows = _ask(address, lambda: queries.statuses(address, kind=kind, namespace=namespace))
    columns = [
        "kind",
        "namespace",
        "name",
        "generation",
        "accepted",
        "programmed",
        "proxies",
        "message",
    ]
    output.show(rows, columns=columns, form=form)


@app.command()
def services(
    namespace: Namespace = "", address: Discovery = DISCOVERY, form: Output = output.Format.TABLE
) -> None:
    """List the services that discovery knows, with their ready endpoints."""
    rows = _ask(address, lambda: queries.services(address, namespace=namespace))
    output.show(rows, columns=["namespace", "name", "ports", "ready"], form=form)


def _ask(address: str, question: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    try:
        return question()
    except grpc.RpcError as error:
        # What a stub raises is a grpc.Call as well, which its stubs cannot say.
        words = getattr(error, "details", None)
        details = words() if words is not None else str(error)
        raise output.fail(f"discovery at {address} does not answer: {details}") from None


def main() -> None:
    """Run the command line."""
    app()
