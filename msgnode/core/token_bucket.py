"""A token bucket: at most `rate` per second, and as many in one burst."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic


class TokenBucket:
    """A token bucket with a capacity of one second's rate.

    Callers that pay first and wait afterwards may reduce `left` directly, even below zero.
    """

    __slots__ = ("_clock", "_filled_at", "left", "rate")

    def __init__(self, rate: float, clock: Callable[[], float] = monotonic) -> None:
        self.rate = rate
        self.left = rate
        self._clock = clock
        self._filled_at = clock()

    def refill(self) -> None:
        """Add the tokens that have accrued since the last call."""
        now = self._clock()
        self.left = min(self.rate, self.left + (now - self._filled_at) * self.rate)
        self._filled_at = now

    def take(self) -> bool:
        """Take one token, if there is one."""
        self.refill()
        if self.left < 1:
            return False
        self.left -= 1
        return True

    def pay(self, cost: float) -> float:
        """Take so many tokens, whether there are any; return the seconds until none is owed."""
        self.left -= cost
        if self.left < 0:
            self.refill()
        return max(0.0, -self.left / self.rate)

    def seconds_until(self, share: float) -> float:
        """Seconds until the bucket is filled to this share."""
        return max(share - self.left / self.rate, 0.0)
