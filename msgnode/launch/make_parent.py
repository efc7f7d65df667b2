"""Detects that a parent `make` was told to stop.

On SIGTERM make signals the programs it runs and waits for them; on SIGINT it only waits, relying on
the terminal to signal the whole group. If only make was signalled, this process is not told, so it
looks: before dying from a signal, make resets its handler. A make that is gone counts as well.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

_SIGINT_BIT = 1 << (signal.SIGINT - 1)


def _catches_sigint(pid: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) & _SIGINT_BIT)
    return False


class Make:
    """The parent process, if it is a make whose state can be read."""

    def __init__(self) -> None:
        self.pid = os.getppid()
        try:
            name = Path(f"/proc/{self.pid}/comm").read_text().strip()
            self.is_watched = name in ("make", "gmake") and _catches_sigint(self.pid)
        except OSError:
            self.is_watched = False

    def is_stopping(self) -> bool:
        """Whether make was interrupted, or has gone."""
        if not self.is_watched:
            return False
        if os.getppid() != self.pid:
            return True
        try:
            return not _catches_sigint(self.pid)
        except OSError:
            return True
