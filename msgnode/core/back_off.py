"""Exponential back-off with jitter."""

from __future__ import annotations

import random
import time
from collections.abc import Callable


class BackOff:
    """Seconds to wait before the next attempt: doubling, randomly between half and all of it.

    Args:
        first: seconds before the second attempt; the first one does not wait.
        longest: most seconds.
        stable: seconds of success after which the delays begin anew.
    """

    def __init__(
        self,
        first: float,
        longest: float,
        stable: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failures = 0
        self._first = first
        self._longest = longest
        self._stable = stable
        self._clock = clock
        self._succeeded_at: float | None = None

    @property
    def in_a_row(self) -> int:
        """Failures in a row, that is without success for `stable` seconds in between."""
        at = self._succeeded_at
        return 0 if at is not None and self._clock() - at >= self._stable else self.failures

    def failed(self) -> float:
        """Note a failure; return the seconds before the next attempt."""
        self.failures = self.in_a_row
        self._succeeded_at = None
        whole = min(self._longest, self._first * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return whole * (0.5 + random.random() / 2)  # noqa: S311  (spreads, and guards nothing)

    def succeeded(self) -> None:
        """Note a success."""
        self._succeeded_at = self._clock()

    def reset(self) -> None:
        """Forget all failures."""
        self.failures = 0
