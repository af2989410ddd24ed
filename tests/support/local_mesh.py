# SPDX-License-Identifier: Apache-2.0
"""`pilothouse up` as a child process of the test, and whether it leaves anything behind."""

import asyncio
import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.waiting import eventually

SAMPLES = Path(__file__).parents[2] / "samples"
_CLIENT = aiohttp.ClientTimeout(total=10)


@dataclasses.dataclass(slots=True)
class LocalMesh:
    """A running `pilothouse up`, or one that has ended."""

    process: asyncio.subprocess.Process
    place: Path
    """Folder of its own, named in the environment of every process of it."""
    found: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What `-o json` printed, once it is up."""

    @property
    def output(self) -> str:
        """Its stdout so far."""
        return (self.place / "stdout").read_text()

    @property
    def errors(self) -> str:
        """Its stderr so far."""
        return (self.place / "stderr").read_text()

    async def up(self, deadline: float = 120.0) -> None:
        """Wait until it says that it is up; needs `-o json`."""

        def printed() -> bool:
            if self.process.returncode is not None:
                raise RuntimeError(f"it ended before it was up:\n{self.errors}")
            return self.output.rstrip().endswith("}")

        try:
            await eventually(printed, deadline, what="up")
        except AssertionError as error:
            error.add_note(self.errors)
            raise
        self.found = json.loads(self.output)

    async def said(self, text: str, deadline: float = 60.0) -> None:
        """Wait for words on stderr."""
        await eventually(lambda: text in self.errors, deadline, what=f"{text!r} on stderr")

    async def exit(self, deadline: float = 60.0) -> int:
        """Wait for the end; the exit code."""
        async with asyncio.timeout(deadline):
            return await self.process.wait()

    def log(self, name: str) -> str:
        """The log of one of its processes so far."""
        return Path(self.found["logs"], f"{name}.log").read_text()

    async def get(self, host: str, path: str = "/", **headers: str) -> tuple[int, Any]:
        """Status and JSON (or text) of a request through the ingress gateway."""
        async with (
            aiohttp.ClientSession(timeout=_CLIENT) as client,
            client.get(self.found["ingress"] + path, headers={**headers, "Host": host}) as answer,
        ):
            is_json = answer.content_type == "application/json"
            return answer.status, await (answer.json() if is_json else answer.text())

    async def answers(
        self, host: str, path: str, fits: Callable[[Any], bool], *, status: int = 200
    ) -> Any:
        """Wait until a request is answered so; the answer."""

        async def asked() -> Any:
            code, body = await self.get(host, path)
            assert code == status, (code, body)
            assert fits(body), body
            return (body,)

        (found,) = await eventually(asked, 20.0, what=f"{host}{path}")
        return found

    def processes(self) -> dict[int, str]:
        """Every process of it that there is, with its command line."""
        mark = f"TMPDIR={self.place}\0".encode()
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes() + b"\0":
                    words = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(folder.name)] = words.decode()
        return found

    def pid(self, *words: str) -> int:
        """The one process whose command line has all of these words."""
        (pid,) = [p for p, line in self.processes().items() if all(w in line for w in words)]
        return pid

    def listening(self) -> list[str]:
        """Loopback addresses and ports of its block that somebody listens on."""
        match = re.search(r"on 127\.(\d+)\.0\.0/16", self.errors)
        assert match, self.errors
        # In /proc/net/tcp 127.40.0.1 is 0100287F; state 0A listens.
        end = f"{int(match[1]):02X}7F"
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return [w[1] for w in lines if w[3] == "0A" and w[1].partition(":")[0].endswith(end)]

    def homes(self) -> list[Path]:
        """Folders that it made."""
        return sorted(self.place.glob("pilothouse-*"))

    async def nothing_left(self, *, folder: bool = True) -> None:
        """Wait until no process and port (and folder) of it is there."""
        await eventually(lambda: not self.processes(), 10.0, what="no process")
        await eventually(lambda: not self.listening(), 5.0, what="no port")
        if folder:
            assert self.homes() == []


@contextlib.asynccontextmanager
async def run(
    *arguments: str, directory: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[LocalMesh]:
    """`pilothouse ARGUMENTS` inside the block; whatever is left of it afterwards is killed.

    It runs in a session of its own. Of Pilothouse's and OpenTelemetry's variables it sees those of
    `environment`, and which Envoy to take.
    """
    clean = {
        name: value
        for name, value in os.environ.items()
        if name == "PILOTHOUSE_ENVOY" or not name.startswith(("PILOTHOUSE_", "OTEL_"))
    }
    place = Path(tempfile.mkdtemp(prefix="up-"))
    with (place / "stdout").open("wb") as out, (place / "stderr").open("wb") as err:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pilothouse.cli", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=directory,
            env={**clean, "TMPDIR": str(place), **(environment or {})},
            start_new_session=True,
        )
    mesh = LocalMesh(process, place)
    try:
        yield mesh
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await mesh.exit()
        for pid in mesh.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await process.wait()
        shutil.rmtree(place, ignore_errors=True)


def sample_shop(to: Path, partner: str) -> Path:
    """A copy of the samples whose shop has its partner at `partner`, a loopback address."""
    shutil.copytree(SAMPLES, to, dirs_exist_ok=True)
    edit(to / "shop" / "partner.yaml", "127.9.9.9", partner)
    return to / "shop"


def edit(path: Path, old: str, new: str) -> None:
    """Replace text in a file in one step."""
    text = path.read_text()
    assert old in text, text
    write(path, text.replace(old, new))


def write(path: Path, text: str) -> None:
    """Put a file there in one step."""
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(text)
    fresh.rename(path)


def program(name: str, *, host: str = "", upstreams: str = "") -> str:
    """Manifests of a service with one program behind it, and of an Ingress when a host is named."""
    return f"""\
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{selector: {{app: {name}}}, ports: [{{name: http, port: 9080}}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
      - name: app
        command: [python3, {SAMPLES}/echo/echo.py]
        env:
        - {{name: SERVICE, value: {name}}}
        - {{name: PORT, value: "9080"}}
        - {{name: UPSTREAMS, value: "{upstreams}"}}
        ports: [{{name: http, containerPort: 9080}}]
""" + (ingress(name, host) if host else "")


def ingress(name: str, host: str) -> str:
    """An Ingress that sends a host to a service."""
    return f"""\
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {{name: {name}-class}}
spec: {{controller: pilothouse.dev/ingress}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: {name}}}
spec:
  ingressClassName: {name}-class
  rules:
  - host: {host}
    http:
      paths:
      - path: /
        pathType: Prefix
        backend: {{service: {{name: {name}, port: {{number: 9080}}}}}}
"""
