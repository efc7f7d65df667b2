"""Limits of HTTP requests: so many of a kind within a minute from one client, account or key.

Workers of one node count together in their Redis, by `limits` (its sliding window counter). Without
Redis, and while it does not answer, a worker counts in its own memory.

Rules
- Views ask, in their threads: a question may wait for Redis, for the storage's time-out at most.
- While Redis does not answer, it is asked again every RETRY_AFTER seconds, not by every request.
- Memory is bounded: see rates.py. What Redis keeps it forgets after two minutes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic, time

from limits import RateLimitItemPerMinute
from limits.errors import StorageError
from limits.storage import Storage
from limits.strategies import SlidingWindowCounterRateLimiter

from .rates import LockedRates

log = logging.getLogger(__name__)

WINDOW = 60
"""Seconds in which a limit holds."""
RETRY_AFTER = 5.0


class HttpLimits:
    """One instance per process, because views have no worker to ask."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._own = LockedRates()
        self._shared: SlidingWindowCounterRateLimiter | None = None
        self._ask_from = 0.0

    def share(self, storage: Storage) -> None:
        """Count in a storage that other workers count in, too.

        Args:
            storage: one that wraps what it raises into StorageError.
        """
        self._shared = SlidingWindowCounterRateLimiter(storage)

    def take(self, kind: str, who: str, per_minute: int) -> float:
        """Count one request, if that is within the limit.

        Returns:
            0, or the seconds until it would be within the limit; then nothing was counted.
        """
        limit = RateLimitItemPerMinute(per_minute)
        shared = self._asked()
        if shared is not None:
            try:
                if shared.hit(limit, kind, who):
                    return 0.0
                return max(1.0, shared.get_window_stats(limit, kind, who).reset_time - time())
            except StorageError as error:
                self._failed(error)
        return self._own.grant((kind, who), WINDOW, per_minute)

    def is_spent(self, kind: str, who: str, per_minute: int) -> bool:
        """Whether one more would be beyond the limit; counts nothing."""
        shared = self._asked()
        if shared is not None:
            try:
                return not shared.test(RateLimitItemPerMinute(per_minute), kind, who)
            except StorageError as error:
                self._failed(error)
        return self._own.count((kind, who), WINDOW) + 1 > per_minute

    def clear(self) -> None:
        """Forget what this process has counted."""
        self._own.clear()

    def _asked(self) -> SlidingWindowCounterRateLimiter | None:
        return self._shared if self._clock() >= self._ask_from else None

    def _failed(self, error: StorageError) -> None:
        self._ask_from = self._clock() + RETRY_AFTER
        log.warning("HTTP limits are counted by this worker alone: %s", error)


HTTP_LIMITS = HttpLimits()
