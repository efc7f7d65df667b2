"""What stops the launcher: a signal, or a parent `make` that was told to stop."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path


class StopFlag:
    """The flag that signal handlers set; the main thread waits for it.

    A handler may interrupt the main thread anywhere, also another handler: a terminal and `make`
    both send the signal, often at the same time. So nothing here takes a lock. threading.Event
    does, and a `set` that interrupts another one in the same thread would wait for ever. A pipe
    wakes the waiting thread.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._wakes, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def set(self) -> None:
        """Set the flag. For signal handlers."""
        self.is_set = True
        with suppress(BlockingIOError):  # the pipe is full, so it wakes anyway
            os.write(self._wake, b"\0")

    def wait(self, seconds: float) -> bool:
        """Wait for the flag, for at most so many seconds; return whether it is set."""
        if not self.is_set:
            select.select([self._wakes], [], [], seconds)
        return self.is_set


_SIGINT_BIT = 1 << (signal.SIGINT - 1)


def _catches_sigint(pid: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) & _SIGINT_BIT)
    return False


class Make:
    """The parent process, if it is a make whose state can be read: whether it was told to stop.

    On SIGTERM make signals the programs it runs and waits for them; on SIGINT it only waits,
    relying on the terminal to signal the whole group. If only make was signalled, this process is
    not told, so it looks: before dying from a signal, make resets its handler. A make that is gone
    counts as well.
    """

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
