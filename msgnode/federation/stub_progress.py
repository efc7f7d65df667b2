"""What to do about a stub that is not live: have it connect again, or end it. Pure.

A stub that has a socket, or asks for none, has to say within a while that it is live: else it is
ended, and begins anew as one that has failed. While its socket is being opened no time passes for
it: that the peer is away is no fault of the stub.
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
        """A stub was loaded: its time begins."""
        self._since = self._clock()

    def entered(self, state: str) -> None:
        """The stub is in another state now."""
        if state == LIVE:
            self.ended = ""
        elif state == DISCONNECTED:
            self._disconnected_at = self._clock()

    def hurry(self) -> None:
        """It is to be told to connect at once."""
        self._disconnected_at = 0.0

    def is_to_connect(self, state: str, sockets: int) -> bool:
        """Whether it is to be told to connect now; it is told so again after a while."""
        now = self._clock()
        is_due = state == DISCONNECTED and now - self._disconnected_at > RECONNECT_SECONDS
        if not is_due or sockets:
            return False
        self._disconnected_at = now
        return True

    def is_late(self, state: str, sockets: int, is_open: bool) -> bool:
        """Whether it has had its time. To be asked now and then.

        Args:
            state: that it has said.
            sockets: that it has, those included that are being opened.
            is_open: whether one of them is open.
        """
        if (state == LIVE) if is_open else sockets:
            self.begin()
        return self._clock() - self._since >= self.seconds
