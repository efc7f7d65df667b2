"""Measures the memory of a run: of its process and all its children, Java and Python workers alike.

It is measured every second, because workers come and go. Memory that several processes share is
counted once (the kernel's proportional set size). 0 if the kernel does not tell.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

EVERY_SECONDS = 1.0
_PROC = Path("/proc")


class Peak:
    """The most memory that this process and its descendants had at once, from now on."""

    def __init__(self) -> None:
        self._bytes = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def mb(self) -> int:
        """The peak so far, in MiB."""
        self._look()
        return self._bytes // 1024**2

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(EVERY_SECONDS):
            self._look()

    def _look(self) -> None:
        self._bytes = max(self._bytes, sum(map(_bytes_of, family(os.getpid()))))


def family(of: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # it ended
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found = [of]
    for each in found:
        found += children.get(each, [])
    return found


def _bytes_of(process: int) -> int:
    with suppress(OSError):  # it ended, or is not ours to look at
        for line in (_PROC / str(process) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
