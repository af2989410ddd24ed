# SPDX-License-Identifier: Apache-2.0
"""Run as a program: ties its process to its parent's life, then becomes another program.

    python -I -S tether.py PARENT_PID COMMAND [ARGUMENT...]

The kernel kills this process when the thread that started it ends (docs/adr/0020). The setting
outlives `exec`, so COMMAND keeps this pid and inherits the tie. Standard library only, and no more
of it than needed: this runs before every start of a child.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Set the tie, make sure that it was not too late, and exec."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    # KILL, since nobody is left to follow a TERM with anything stronger.
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"{command[0]}: cannot be tied to its parent: {os.strerror(ctypes.get_errno())}")
    # A parent that died before the line above sends no signal any more.
    if os.getppid() != parent:
        sys.exit(f"{command[0]}: not started, its parent has gone")
    try:
        os.execv(command[0], command)  # noqa: S606 - our own arguments, no shell wanted
    except OSError as error:
        sys.stderr.write(f"{command[0]}: cannot be run: {error.strerror}\n")
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main()
