"""That somebody has told us to stop: set by handlers of signals, waited for by the main thread.

A handler runs in the middle of whatever the main thread does, also of another handler: a terminal
and `make` both tell us, often at once. So nothing here takes a lock. threading.Event does, and its
second `set` in the same thread waits for the first for ever.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress


class ToldToStop:
    """A flag, and a pipe that wakes whoever waits for it."""

    def __init__(self) -> None:
        self.is_set = False
        self._wakes, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def set(self) -> None:
        """Stop. For handlers of signals."""
        self.is_set = True
        with suppress(BlockingIOError):  # it is full, so it wakes already
            os.write(self._wake, b"\0")

    def wait(self, seconds: float) -> bool:
        """Wait until we are told, for so many seconds at most; whether we are."""
        if not self.is_set:
            select.select([self._wakes], [], [], seconds)
        return self.is_set
