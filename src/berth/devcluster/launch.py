"""Becomes the given command, after asking the kernel to kill it when its parent dies.

Run as a script by process.py, with the standard library only: `python launch.py <parent pid> <command …>`.
The request survives exec, so no guardian stays behind, and no Python code runs between fork and exec in a
process that has threads. Linux only; elsewhere the owner's own clean stop has to do.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have died before the request was made; then nobody will tell us any more.
        if os.getppid() != parent:
            os._exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
