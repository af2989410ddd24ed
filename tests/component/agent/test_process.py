# SPDX-License-Identifier: Apache-2.0
"""Child processes: exit codes, signals, and that nothing is left behind."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from pilothouse.adapters import process
from tests.support.agent import alive
from tests.support.waiting import eventually

Child = Callable[[str], process.Supervisor]


@pytest.fixture
async def child() -> AsyncIterator[Child]:
    made: list[process.Supervisor] = []

    def make(code: str) -> process.Supervisor:
        made.append(process.Supervisor((sys.executable, "-S", "-c", code)))
        return made[-1]

    yield make
    for each in made:
        with contextlib.suppress(RuntimeError):
            await each.stop(grace=0.0)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 139),
    ],
)
async def test_the_exit_code_is_the_childs_or_128_plus_the_signal(
    child: Child, code: str, expected: int
):
    supervisor = child(code)
    await supervisor.start()
    assert await supervisor.wait() == expected
    assert supervisor.returncode == expected


async def test_a_missing_command_ends_with_127_as_in_a_shell(tmp_path: Path):
    supervisor = process.Supervisor((str(tmp_path / "missing"),))
    await supervisor.start()
    assert await supervisor.wait() == 127


async def test_the_child_leads_a_group_of_its_own_under_the_pid_we_know(
    child: Child, tmp_path: Path
):
    out = tmp_path / "ids"
    supervisor = child(
        f"import os; open({str(out)!r}, 'w').write(f'{{os.getpid()}} {{os.getpgrp()}}')"
    )
    await supervisor.start()
    assert await supervisor.wait() == 0
    assert out.read_text() == f"{supervisor.pid} {supervisor.pid}"


def sleeper(ready: Path, *, stubborn: bool = False) -> str:
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN);" if stubborn else ""
    return f"import signal, time; {ignore} open({str(ready)!r}, 'w').close(); time.sleep(60)"


async def test_stop_asks_first(child: Child, tmp_path: Path):
    supervisor = child(sleeper(tmp_path / "ready"))
    await supervisor.start()
    await eventually((tmp_path / "ready").exists)
    assert await supervisor.stop(grace=10) == 128 + signal.SIGTERM


async def test_stop_kills_what_does_not_listen(child: Child, tmp_path: Path):
    supervisor = child(sleeper(tmp_path / "ready", stubborn=True))
    await supervisor.start()
    await eventually((tmp_path / "ready").exists)
    assert await supervisor.stop(grace=0.1) == 137
    assert await supervisor.stop(grace=0.1) == 137


async def test_a_signal_is_passed_on(child: Child, tmp_path: Path):
    ready = tmp_path / "ready"
    supervisor = child(
        "import signal, sys, time; signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3));"
        f"open({str(ready)!r}, 'w').close(); time.sleep(60)"
    )
    await supervisor.start()
    await eventually(ready.exists)
    supervisor.send(signal.SIGUSR1)
    assert await supervisor.wait() == 3
    supervisor.send(signal.SIGUSR1)


async def test_what_the_child_left_behind_is_ended_too(child: Child, tmp_path: Path):
    out = tmp_path / "pid"
    supervisor = child(
        "import subprocess, sys; p = subprocess.Popen(['sleep', '60']);"
        f"open({str(out)!r}, 'w').write(str(p.pid))"
    )
    await supervisor.start()
    assert await supervisor.wait() == 0
    left = int(out.read_text())
    await eventually(lambda: not alive(left))


async def test_a_parent_that_is_killed_takes_the_child_along(tmp_path: Path):
    out = tmp_path / "pid"
    code = (
        "import asyncio, sys; from pilothouse.adapters import process\n"
        "async def main():\n"
        "    child = process.Supervisor(('/bin/sleep', '60'))\n"
        "    await child.start()\n"
        f"    open({str(out)!r}, 'w').write(str(child.pid))\n"
        "    await child.wait()\n"
        "asyncio.run(main())"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    try:
        pid = int(await eventually(lambda: out.exists() and out.read_text()))
        # Before that it is still our own program, and would notice by itself.
        await eventually(lambda: Path(f"/proc/{pid}/cmdline").read_text().startswith("/bin/sleep"))
        parent.kill()
        await parent.wait()
        await eventually(lambda: not alive(pid), 30)
    finally:
        if parent.returncode is None:
            parent.kill()
            await parent.wait()
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(out.read_text()), signal.SIGKILL)


async def test_a_child_is_not_started_for_a_parent_that_has_gone():
    tether = Path(process.__file__).with_name("tether.py")
    started = await asyncio.create_subprocess_exec(
        sys.executable, str(tether), "1", "/bin/true", stderr=asyncio.subprocess.PIPE
    )
    _out, err = await started.communicate()
    assert started.returncode == 1
    assert b"its parent has gone" in err


async def test_a_child_must_be_started_from_the_main_thread(child: Child):
    supervisor = child("pass")

    def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="main thread"):
            asyncio.run(supervisor.start())

    await asyncio.to_thread(elsewhere)


@pytest.mark.parametrize(
    ("code", "hint"),
    [(137, "memory limit"), (139, "crashed"), (127, "not found"), (1, ""), (250, "")],
)
def test_exit_codes_are_explained(code: int, hint: str):
    found = process.exit_hint(code)
    assert hint in found
    assert bool(found) == bool(hint)


# A subreaper is given orphans, as process 1 is.
REAPER = """
import ctypes, os, signal, subprocess, sys, time
from pilothouse.adapters.process.reaper import run_under_reaper
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    for _ in range(3):
        subprocess.run(["sh", "-c", "sleep 0.05 & exit 0"])
    open(sys.argv[1], "w").write(f"{os.getpid()} {os.getppid()}")
    time.sleep(60)
sys.exit(run_under_reaper(main))
"""


async def test_process_one_reaps_orphans_passes_signals_on_and_gives_the_exit_code(tmp_path: Path):
    out = tmp_path / "pids"
    reaper = await asyncio.create_subprocess_exec(sys.executable, "-c", REAPER, str(out))
    try:
        text = await eventually(lambda: out.exists() and out.read_text())
        program, parent = map(int, text.split())
        assert parent == reaper.pid
        children = Path(f"/proc/{reaper.pid}/task/{reaper.pid}/children")
        await eventually(lambda: children.read_text().split() == [str(program)], what="reaped")
        reaper.terminate()
        assert await asyncio.wait_for(reaper.wait(), 10) == 5
        assert not alive(program)
    finally:
        if reaper.returncode is None:
            reaper.kill()
            await reaper.wait()
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(out.read_text().split()[0]), signal.SIGKILL)
