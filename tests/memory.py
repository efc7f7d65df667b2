"""What a node holds once its garbage is collected, as the tests ask for it.

A node lets garbage lie (msgnode/servers/collector.py), up to some 100 MB, and what is freed stays
with the process in part. So what a process has in RAM does not tell whether something leaks.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from pathlib import Path

from .waiting import until

FOLDER = "HELD_MEMORY"
"""The environment variable that names the folder in which forks of tests/fork_server.py tell it."""
_BLOCK = 64
"""Bytes of a block of Python's own allocator, about: it has them up to 512 bytes."""
_LOOKS = 3
"""At a moment some pages may just be made, of 100 KB each."""
_SECONDS = 30.0


class _Malloc(ctypes.Structure):
    """The C library's `struct mallinfo2`."""

    _fields_ = [  # noqa: RUF012
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    ]  # fmt: skip


def tell_when_asked(folder: str) -> None:
    """Collect the garbage of this process at SIGUSR2, and write the bytes that it holds."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Malloc

    def tell(*_: object) -> None:
        gc.unfreeze()
        gc.collect()
        found = mallinfo()
        held = _BLOCK * sys.getallocatedblocks() + found.uordblks + found.hblkhd
        place = Path(folder, f"held-{os.getpid()}")
        place.with_suffix(".new").write_text(str(held))
        place.with_suffix(".new").replace(place)

    signal.signal(signal.SIGUSR2, tell)


def held(folder: Path, pid: int) -> int:
    """The bytes that a process holds, without garbage: the least of a few looks."""
    place = folder / f"held-{pid}"

    def look() -> int:
        place.unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR2)
        until(place.exists, _SECONDS)
        return int(place.read_text())

    return min(look() for _ in range(_LOOKS))
