"""Waiting longer after each failure, so that what fails does not fail in a tight loop."""

from __future__ import annotations

import random
import time
from collections.abc import Callable


class BackOff:
    """Seconds to wait before the next try: doubling, between half and all of it.

    Args:
        first: seconds before the second try; the first one waits for nothing.
        longest: seconds at most.
        stable: seconds of success after which delays begin anew.
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
        """Failures since there was success for `stable` seconds."""
        at = self._succeeded_at
        return 0 if at is not None and self._clock() - at >= self._stable else self.failures

    def failed(self) -> float:
        """A try has ended; the seconds before the next."""
        self.failures = self.in_a_row
        self._succeeded_at = None
        whole = min(self._longest, self._first * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return whole * (0.5 + random.random() / 2)  # noqa: S311  (spreads, and guards nothing)

    def succeeded(self) -> None:
        """The try has led somewhere."""
        self._succeeded_at = self._clock()

    def reset(self) -> None:
        """Forget all failures: somebody has said so."""
        self.failures = 0
