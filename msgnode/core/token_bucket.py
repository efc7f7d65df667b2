"""A token bucket: at most `rate` a second, and as many at once."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic


class TokenBucket:
    """Holds one second's worth.

    `left` may be drawn on directly, below zero as well, where what was taken is counted first and
    waited for afterwards.
    """

    __slots__ = ("_clock", "_filled_at", "left", "rate")

    def __init__(self, rate: float, clock: Callable[[], float] = monotonic) -> None:
        self.rate = rate
        self.left = rate
        self._clock = clock
        self._filled_at = clock()

    def refill(self) -> None:
        """Add what has grown since the last time."""
        now = self._clock()
        self.left = min(self.rate, self.left + (now - self._filled_at) * self.rate)
        self._filled_at = now

    def take(self) -> bool:
        """Take one, if there is one."""
        self.refill()
        if self.left < 1:
            return False
        self.left -= 1
        return True

    def seconds_until(self, share: float) -> float:
        """Seconds until this share of the bucket is filled."""
        return max(share - self.left / self.rate, 0.0)
