"""Decides whether a stub that is not live should reconnect or be ended. Pure.

A stub that has a socket, or asks for none, must report within a time limit that it is live.
Otherwise it is ended and restarted like one that has failed. The time limit does not run while its
socket is being opened, because an unreachable peer is not the stub's fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .stub_status import DISCONNECTED, LIVE

LIVE_SECONDS = 30.0
"""Longer than a peer may be silent (heartbeat.py): one that is frozen loses its socket first."""
RECONNECT_SECONDS = 1.0
"""After which a stub that does not come back by itself is told to."""


class StubProgress:
    """One instance per peer that this worker serves.

    Args:
        seconds: in which a stub has to be live.
        clock: seconds that only grow.

    Attributes:
        ended: why the last stub has, if none is live since.
    """

    def __init__(
        self, seconds: float = LIVE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = seconds
        self.ended = ""
        self._clock = clock
        self._since = self._disconnected_at = clock()

    def begin(self) -> None:
        """Start the time limit, because a stub was loaded."""
        self._since = self._clock()

    def entered(self, state: str) -> None:
        """Note the stub's new state."""
        if state == LIVE:
            self.ended = ""
        elif state == DISCONNECTED:
            self._disconnected_at = self._clock()

    def hurry(self) -> None:
        """Make the stub due to reconnect at once."""
        self._disconnected_at = 0.0

    def is_to_connect(self, state: str, sockets: int) -> bool:
        """Whether to tell it to reconnect now; if so, the next time is after a pause."""
        now = self._clock()
        is_due = state == DISCONNECTED and now - self._disconnected_at > RECONNECT_SECONDS
        if not is_due or sockets:
            return False
        self._disconnected_at = now
        return True

    def is_late(self, state: str, sockets: int, is_open: bool) -> bool:
        """Whether its time limit has passed. Call this regularly.

        Args:
            state: the state it has reported.
            sockets: the number of its sockets, including those that are being opened.
            is_open: whether one of them is open.
        """
        if (state == LIVE) if is_open else sockets:
            self.begin()
        return self._clock() - self._since >= self.seconds
