"""The flag that signal handlers set to stop the launcher; the main thread waits for it.

A handler may interrupt the main thread anywhere, also another handler: a terminal and `make` both
send the signal, often at the same time. So nothing here takes a lock. threading.Event does, and a
`set` that interrupts another one in the same thread would wait for ever.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress


class StopFlag:
    """A flag, and a pipe that wakes the waiting thread."""

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
