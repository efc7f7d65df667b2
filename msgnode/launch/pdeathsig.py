"""Starts a program that ends with its parent: `python -m msgnode.launch.pdeathsig TERM program …`.

When the parent dies, even by `kill -9`, the program gets the signal. Linux only; elsewhere the
program is just started. The setting survives the exec.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tie(death_signal: signal.Signals) -> None:
    """Have the kernel send this process `death_signal` when its parent ends."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it has already ended
        os.kill(os.getpid(), death_signal)


def main(arguments: list[str]) -> None:
    """Tie this process to its parent, and exec the program."""
    name, *command = arguments
    tie(signal.Signals[f"SIG{name}"])
    os.execvp(command[0], command)  # noqa: S606  (no shell is what we want)


if __name__ == "__main__":
    main(sys.argv[1:])
