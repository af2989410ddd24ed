# SPDX-License-Identifier: Apache-2.0
"""The verbs of ``pilothouse``.

Exit codes: 0 fine, 1 the answer is no or something failed, 2 wrong use.

What a verb alone needs is imported by it: the libraries of all verbs together take half a second.
"""

from __future__ import annotations

import asyncio
import functools
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pilothouse import buildinfo
from pilothouse.adapters import process
from pilothouse.cli import output

if TYPE_CHECKING:
    from pilothouse.cli import queries

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
        path = process.find_envoy()
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
    from pilothouse.cli import up as verb  # noqa: PLC0415

    _require_folder(folder)
    _run(
        lambda: verb.run(
            folder, duration=duration, block=block, keep=keep, form=form, say=_progress
        )
    )


@app.command()
def demo(folder: Folder = SAMPLES, form: Output = output.Format.TABLE) -> None:
    """Run the sample shop under traffic, change a rule meanwhile, and report what was seen."""
    from pilothouse.cli import demo as verb  # noqa: PLC0415

    _require_folder(folder)
    report = _run(lambda: verb.run(folder, say=_progress))
    if form is output.Format.TABLE:
        for line in report.as_text():
            typer.echo(line)
    else:
        output.show_one(report.as_json(), form=form)
    if not report.good:
        raise output.fail("the mesh did not do what was asked of it")


def _progress(line: str) -> None:
    typer.echo(line, err=True)


def _require_folder(folder: pathlib.Path) -> None:
    """Tell who did not name one where the sample is looked for."""
    if not folder.is_dir() and folder == SAMPLES:
        raise output.fail(
            f"there is no {SAMPLES} in {pathlib.Path.cwd()}: name a folder of manifests with -f, "
            "or run this in a checkout of Pilothouse"
        )


def _run(verb: Callable[[], Any]) -> Any:
    from pilothouse.cli.local import errors  # noqa: PLC0415

    try:
        return asyncio.run(verb())
    except (errors.MeshError, process.EnvoyNotFoundError) as error:
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
    from pilothouse.cli import validating  # noqa: PLC0415

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
    from pilothouse.cli import queries  # noqa: PLC0415

    rows = _ask(address, "proxies", queries.proxies)
    output.show(rows, columns=["node", "role", "state"], form=form)


@app.command("proxy-config")
def proxy_config(
    kind: Annotated[
        str,
        typer.Argument(
            help="clusters, endpoints, listeners, routes, secrets, extensions, or all of them."
        ),
    ],
    proxy: Annotated[
        str,
        typer.Argument(help="NAME, NAME.NAMESPACE or node id; `pilothouse proxies` lists them."),
    ],
    *,
    name: Annotated[str, typer.Option("--name", help="Only names with this in them.")] = "",
    address: Discovery = DISCOVERY,
    form: Output = output.Format.TABLE,
) -> None:
    """Show what a proxy is to hold, and whether it has accepted it; with -o json, all of it.

    States: SYNCED (acknowledged), STALE (sent, not answered yet), NOT_SENT, ERROR (refused, with
    the proxy's words).
    """
    from pilothouse.cli import proxy_config as verb  # noqa: PLC0415

    if kind not in verb.KINDS:
        raise output.fail(f"unknown kind {kind!r}; known: {', '.join(verb.KINDS)}", code=2)
    bodies = form is not output.Format.TABLE
    question = functools.partial(verb.resources, kind=kind, proxy=proxy, name=name, bodies=bodies)
    try:
        rows = _ask(address, "proxy-config", question)
    except verb.NotOneProxyError as error:
        raise output.fail(str(error)) from None
    output.show(rows, columns=["type", "name", "state", "version", "refused"], form=form)


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
    from pilothouse.cli import queries  # noqa: PLC0415

    question = functools.partial(queries.statuses, kind=kind, namespace=namespace)
    rows = _ask(address, "get", question)
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
    from pilothouse.cli import queries  # noqa: PLC0415

    rows = _ask(address, "services", functools.partial(queries.services, namespace=namespace))
    output.show(rows, columns=["namespace", "name", "ports", "ready"], form=form)


def _ask(address: str, verb: str, question: queries.Question) -> list[dict[str, Any]]:
    from pilothouse.cli import queries  # noqa: PLC0415

    try:
        return asyncio.run(queries.ask(address, verb, question))
    except queries.NoAnswerError as error:
        raise output.fail(str(error)) from None


def main() -> None:
    """Run the command line."""
    app()
