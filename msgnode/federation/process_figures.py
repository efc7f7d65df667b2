"""Memory and processor time of a process and its children, from /proc. Elsewhere: zero."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_MAX_PROCESSES = 64


class Figures(NamedTuple):
    """Bytes in memory, and seconds of processor time."""

    memory: int
    cpu: float


def read(pid: int) -> Figures:
    """The current usage of a process and its children; ended processes count zero."""
    memory, ticks = 0, 0
    waiting = [pid]
    seen = 0
    while waiting and seen < _MAX_PROCESSES:
        each = waiting.pop()
        seen += 1
        try:
            place = _PROC / str(each)
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
            memory += int((place / "statm").read_text().split()[1]) * _PAGE
            children = (place / "task" / str(each) / "children").read_text()
            waiting += map(int, children.split())
        except (OSError, ValueError, IndexError):
            continue
    return Figures(memory, ticks / _TICKS)


_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
