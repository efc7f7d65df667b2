"""Execs a program under resource limits: `python -I confine.py DATA_BYTES program …`.

Started by path, so that nothing of the node is imported. The program ends with its parent, and has
a process group of its own, no core file and few open files.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1
_LIMITS = (
    (resource.RLIMIT_NOFILE, 64),
    (resource.RLIMIT_FSIZE, 8 * 1024 * 1024),
    (resource.RLIMIT_CORE, 0),
)


def main(data_bytes: int, command: list[str]) -> None:
    """Apply the limits to this process, and exec the program."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    for kind, limit in ((resource.RLIMIT_DATA, data_bytes), *_LIMITS):
        resource.setrlimit(kind, (limit, limit))
    os.execv(command[0], command)  # noqa: S606  (no shell is what we want)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
